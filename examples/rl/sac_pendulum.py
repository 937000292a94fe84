"""Soft actor-critic on Pendulum-v1.

Haarnoja et al., "Soft actor-critic algorithms and applications" (2018): two critics, a policy of
squashed Gaussians, and an entropy coefficient that is learned too.

How the pieces share weights:

- ``critic`` trains both Q functions; its snapshot, moved a little after every step, is the target.
- ``actor`` trains the policy through the critics. They are part of its model, frozen, and with
  ``share=critic`` they follow the critic's trainer without a copy.
- ``policy`` only predicts actions, on the actor's weights (``share=actor``).

Run ``python sac_pendulum.py --seed 1``; it needs ``pip install pyggml[rl]``.
"""

import argparse
import math
import time

import gymnasium as gym
import numpy as np

import pyggml
from pyggml import layers, ops

TOTAL_STEPS = 12_000
LEARNING_STARTS = 500
LEARNING_RATE = 1e-3
HIDDEN = 64
BATCH = 128
GAMMA = 0.98
TAU = 0.01
HIGHEST = 2.0  # the torque that the environment takes
TARGET_ENTROPY = -1.0
EVALUATE_EVERY = 1_000


class SquashedGaussian(layers.Layer):
    """Turn mean, logarithm of the deviation and noise into an action and its log-probability.

    The action is ``HIGHEST * tanh(u)`` with ``u = mean + exp(log_std) * noise``. Its density is
    that of u divided by the derivative of the squashing, whose logarithm is computed as
    ``2 (log 2 - u - softplus(-2 u))`` (Haarnoja et al. 2018, appendix C), without overflow.
    """

    def call(self, x):
        mean, raw, noise = x
        # Between -5 and 2, smoothly: a clipped one would have no gradient at the ends.
        log_std = ops.affine(ops.tanh(raw), 3.5, -1.5)
        u = ops.add(mean, ops.multiply(ops.exp(log_std), noise))
        gaussian = ops.affine(ops.square(noise), -0.5, -0.5 * math.log(2 * math.pi))
        squashing = 2.0 * (math.log(2) - u - ops.softplus(-2.0 * u)) + math.log(HIGHEST)
        log_prob = ops.sum(gaussian - log_std - squashing, axis=-1, keepdims=True)
        return ops.affine(ops.tanh(u), HIGHEST), log_prob


class ActorObjective(layers.Layer):
    """``alpha * log_prob - min(q1, q2)`` for every row, to be made small."""

    def call(self, x):
        alpha, log_prob, q1, q2 = x
        return alpha * log_prob - ops.minimum(q1, q2)


def make_policy():
    observation, noise = pyggml.Input((3,), name="observation"), pyggml.Input((1,), name="noise")
    h = layers.Dense(HIDDEN, "relu")(observation)
    h = layers.Dense(HIDDEN, "relu")(h)
    action, log_prob = SquashedGaussian(name="squashed")(
        [layers.Dense(1)(h), layers.Dense(1)(h), noise])
    return pyggml.Model([observation, noise], {"action": action, "log_prob": log_prob})


def make_critics():
    observation, action = pyggml.Input((3,), name="observation"), pyggml.Input((1,), name="action")
    outputs = {}
    for name in ("q1", "q2"):
        h = layers.Concatenate()([observation, action])
        h = layers.Dense(HIDDEN, "relu")(h)
        h = layers.Dense(HIDDEN, "relu")(h)
        outputs[name] = layers.Dense(1)(h)
    return pyggml.Model([observation, action], outputs)


def make_actor(policy, critics):
    """The actor's loss as a model: the objective is its output."""
    observation, noise = pyggml.Input((3,)), pyggml.Input((1,))
    alpha = pyggml.Input((1,))
    action, log_prob = policy([observation, noise])
    q1, q2 = critics([observation, action])
    objective = ActorObjective()([alpha, log_prob, q1, q2])
    return pyggml.Model([observation, noise, alpha], objective)


class EntropyCoefficient:
    """The logarithm of alpha, moved by Adam until the policy has the entropy that is wanted."""

    def __init__(self):
        self.log, self.m, self.v, self.t = 0.0, 0.0, 0.0, 0

    def __float__(self):
        return math.exp(self.log)

    def update(self, log_prob):
        g = -float(np.mean(log_prob) + TARGET_ENTROPY)
        self.t += 1
        self.m = 0.9 * self.m + 0.1 * g
        self.v = 0.999 * self.v + 0.001 * g * g
        self.log -= (LEARNING_RATE * self.m / (1 - 0.9**self.t)
                     / (math.sqrt(self.v / (1 - 0.999**self.t)) + 1e-8))


class Agent:
    """Networks, trainers and the replay buffer."""

    def __init__(self, seed, size):
        pyggml.set_seed(seed)
        self.rng = np.random.default_rng(seed)
        policy, critics = make_policy(), make_critics()
        adam = pyggml.optimizers.Adam(LEARNING_RATE)
        critics.compile(adam, loss="mse")
        self.critic = pyggml.Trainer(critics, BATCH)
        self.target = self.critic.snapshot()
        critics.trainable = False  # in the trainers that are made from here on
        actor = make_actor(policy, critics)
        actor.compile(adam, loss="output")
        self.actor = pyggml.Trainer(actor, BATCH, share=self.critic)
        policy.compile(adam, loss="output")
        self.policy = pyggml.Trainer(policy, BATCH, share=self.actor)
        self.alpha = EntropyCoefficient()
        self.observations = np.zeros((size, 3), np.float32)
        self.next_observations = np.zeros((size, 3), np.float32)
        self.actions = np.zeros((size, 1), np.float32)
        self.rewards = np.zeros((size, 1), np.float32)
        self.used = 0

    def noise(self, n):
        return self.rng.standard_normal((n, 1), np.float32)

    def act(self, observations, deterministic=False):
        n = len(observations)
        noise = np.zeros((n, 1), np.float32) if deterministic else self.noise(n)
        return self.policy.predict([observations, noise])[0]

    def remember(self, observation, action, reward, after):
        i = self.used
        self.observations[i], self.next_observations[i] = observation, after
        self.actions[i], self.rewards[i] = action, reward
        self.used += 1

    def learn(self):
        rows = self.rng.integers(0, self.used, BATCH)
        observations, after = self.observations[rows], self.next_observations[rows]
        action, log_prob = self.policy.predict([after, self.noise(BATCH)])
        q1, q2 = self.target.predict([after, action])
        alpha = float(self.alpha)
        # Episodes of the pendulum never end by themselves: the future always counts.
        value = self.rewards[rows] + GAMMA * (np.minimum(q1, q2) - alpha * log_prob)
        self.critic.step([observations, self.actions[rows]], [value, value])
        self.actor.step([observations, self.noise(BATCH), np.full((BATCH, 1), alpha, np.float32)])
        self.alpha.update(log_prob)
        self.critic.update_target(self.target, TAU)

    def free(self):
        for owner in (self.policy, self.actor, self.critic, self.target):
            owner.free()


def evaluate(agent, episodes, seed):
    """Return the returns of the policy without noise; the episodes run side by side."""
    envs = gym.make_vec("Pendulum-v1", num_envs=episodes, vectorization_mode="sync")
    observations, _ = envs.reset(seed=seed)
    returns = np.zeros(episodes)
    for _ in range(200):
        actions = agent.act(observations, deterministic=True)
        observations, rewards, _, _, _ = envs.step(actions)
        returns += rewards
    envs.close()
    return returns


def train(seed, total_steps=TOTAL_STEPS, verbose=True):
    """Train an agent; return it and a list of (step, return) of the episodes on the way."""
    agent = Agent(seed, total_steps)
    env = gym.make("Pendulum-v1")
    curve, total = [], 0.0
    observation, _ = env.reset(seed=seed)
    for step in range(1, total_steps + 1):
        if step <= LEARNING_STARTS:
            action = agent.rng.uniform(-HIGHEST, HIGHEST, 1).astype(np.float32)
        else:
            action = agent.act(observation[np.newaxis])[0]
        after, reward, terminated, truncated, _ = env.step(action)
        agent.remember(observation, action, reward, after)
        observation, total = after, total + float(reward)
        if terminated or truncated:
            curve.append((step, total))
            observation, _ = env.reset()
            total = 0.0
        if step > LEARNING_STARTS:
            agent.learn()
        if verbose and step % EVALUATE_EVERY == 0:
            print(f"step {step:6d}  alpha {float(agent.alpha):.3f}  return of the last episodes "
                  f"{np.mean([r for _, r in curve[-5:]]):8.1f}", flush=True)
    env.close()
    return agent, curve


def plot(curve, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    steps, returns = np.array(curve).T
    width = min(5, len(returns))
    smooth = np.convolve(returns, np.ones(width) / width, "valid")
    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    axes.plot(steps, returns, color="0.8", label="episode")
    axes.plot(steps[width - 1:], smooth, label=f"mean of {width}")
    axes.set(xlabel="environment steps", ylabel="return", title="SAC, Pendulum-v1")
    axes.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=TOTAL_STEPS)
    parser.add_argument("--threads", type=int, help="by default what the process may use")
    parser.add_argument("--plot", default="sac_pendulum.png", help="where the curve goes")
    options = parser.parse_args()
    if options.threads:
        pyggml.set_num_threads(options.threads)
    started = time.perf_counter()
    agent, curve = train(options.seed, options.steps)
    seconds = time.perf_counter() - started
    if curve:
        plot(curve, options.plot)
    returns = evaluate(agent, 20, seed=20_000 + options.seed)
    agent.free()
    print(f"seed {options.seed}: mean return {returns.mean():.1f} over {len(returns)} episodes, "
          f"trained on {options.steps} steps in {seconds:.0f} s")


if __name__ == "__main__":
    main()
