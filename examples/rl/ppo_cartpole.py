"""Proximal policy optimization on CartPole-v1.

Schulman et al., "Proximal policy optimization algorithms" (2017), with generalised advantage
estimation. The hyper-parameters are those of rl-baselines3-zoo: 8 environments, 32 steps each,
20 passes over these 256 rows, learning rate and clipping range falling to 0.

The clipped objective is written as a layer on further inputs (actions, advantages, old
log-probabilities, returns), and the model that ends in it is compiled with ``loss="output"``. A
second trainer on the same layers, with ``share=``, predicts with the weights as they move.

Run ``python ppo_cartpole.py --seed 1``; it needs ``pip install pyggml[rl]``.
"""

import argparse
import time

import gymnasium as gym
import numpy as np

import pyggml
from pyggml import layers, ops

TOTAL_STEPS = 100_000
N_ENVS = 8
N_STEPS = 32
PASSES = 20
ROWS = N_ENVS * N_STEPS  # one batch holds a whole rollout
LEARNING_RATE = 1e-3
CLIP = 0.2
GAMMA = 0.98
LAMBDA = 0.8
VALUE_WEIGHT = 0.5
N_ACTIONS = 2
EVALUATE_EVERY = 40  # rollouts


class ClippedObjective(layers.Layer):
    """PPO's loss of every row: clipped surrogate and value error.

    Inputs are logits, value, one-hot action, advantage, old log-probability, return and clipping
    range, each of shape (batch, 1) but the first and the third.
    """

    def call(self, x):
        logits, value, action, advantage, old_log_prob, wanted, clip = x
        log_prob = ops.sum(ops.log_softmax(logits) * action, axis=-1, keepdims=True)
        ratio = ops.exp(log_prob - old_log_prob)
        # clip(ratio, 1 - c, 1 + c), for a c that is a tensor
        low = ops.maximum(ratio, ops.affine(clip, -1.0, 1.0))
        clipped = ops.minimum(low, ops.affine(clip, 1.0, 1.0))
        surrogate = ops.minimum(clipped * advantage, ratio * advantage)
        return ops.square(value - wanted) * VALUE_WEIGHT - surrogate


def make_networks():
    """Return the policy with its value function, and the model of the loss around it."""
    observation = pyggml.Input((4,), name="observation")

    def tower(units, name):
        h = layers.Dense(64, "tanh")(observation)
        h = layers.Dense(64, "tanh")(h)
        return layers.Dense(units, name=name)(h)

    logits, value = tower(N_ACTIONS, "logits"), tower(1, "value")
    policy = pyggml.Model(observation, {"logits": logits, "value": value})
    extra = [pyggml.Input((n,), name=name) for name, n in (
        ("action", N_ACTIONS), ("advantage", 1), ("old_log_prob", 1), ("return", 1), ("clip", 1))]
    objective = ClippedObjective()([logits, value, *extra])
    return policy, pyggml.Model([observation, *extra], objective)


def log_softmax(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


class Rollout:
    """What happened in N_STEPS steps of N_ENVS environments."""

    def __init__(self, envs, observations, rng):
        self.envs, self.rng, self.next = envs, rng, observations
        self.totals = np.zeros(N_ENVS)

    def collect(self, policy, curve, step):
        shape = (N_STEPS, N_ENVS)
        self.observations = np.zeros((*shape, 4), np.float32)
        self.actions = np.zeros(shape, np.int64)
        self.log_probs, self.values, self.rewards, self.ends = (
            np.zeros(shape, np.float32) for _ in range(4))
        for t in range(N_STEPS):
            logits, value = policy.predict(self.next)
            log_probs = log_softmax(logits)
            # The largest of logits plus Gumbel noise is a sample of the softmax.
            actions = (logits + self.rng.gumbel(size=logits.shape)).argmax(axis=-1)
            self.observations[t], self.actions[t] = self.next, actions
            self.log_probs[t] = log_probs[np.arange(N_ENVS), actions]
            self.values[t] = value[:, 0]
            self.next, rewards, terminated, truncated, info = self.envs.step(actions)
            self.rewards[t], self.ends[t] = rewards, terminated | truncated
            if truncated.any():  # the time limit is no failure: what would have followed counts
                last = np.stack([info["final_obs"][i] for i in np.flatnonzero(truncated)])
                self.rewards[t, truncated] += GAMMA * policy.predict(last)[1][:, 0]
            self.totals += rewards
            for i in np.flatnonzero(self.ends[t]):
                curve.append((step + (t + 1) * N_ENVS, self.totals[i]))
                self.totals[i] = 0.0

    def advantages(self, policy):
        """Return advantages and returns by the exponentially weighted sum of TD errors."""
        result = np.zeros_like(self.rewards)
        value, running = policy.predict(self.next)[1][:, 0], 0.0
        for t in reversed(range(N_STEPS)):
            goes_on = 1 - self.ends[t]
            error = self.rewards[t] + GAMMA * goes_on * value - self.values[t]
            running = error + GAMMA * LAMBDA * goes_on * running
            result[t], value = running, self.values[t]
        return result, result + self.values


def evaluate(policy, episodes, seed):
    """Return the returns of the most probable actions; the episodes run side by side."""
    envs = gym.make_vec("CartPole-v1", num_envs=episodes, vectorization_mode="sync")
    observations, _ = envs.reset(seed=seed)
    returns, running = np.zeros(episodes), np.ones(episodes, bool)
    while running.any():
        actions = policy.predict(observations)[0].argmax(axis=1)
        observations, rewards, terminated, truncated, _ = envs.step(actions)
        returns += rewards * running
        running &= ~(terminated | truncated)
    envs.close()
    return returns


def train(seed, total_steps=TOTAL_STEPS, verbose=True):
    """Train an agent; return its policy and a list of (step, return) of the episodes played."""
    pyggml.set_seed(seed)
    rng = np.random.default_rng(seed)
    policy_model, loss_model = make_networks()
    loss_model.compile(pyggml.optimizers.Adam(LEARNING_RATE, epsilon=1e-5), loss="output")
    policy_model.compile(loss="output")
    trainer = pyggml.Trainer(loss_model, batch_size=ROWS)
    policy = pyggml.Trainer(policy_model, batch_size=ROWS, share=trainer)
    envs = gym.make_vec(
        "CartPole-v1", num_envs=N_ENVS, vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP})
    rollout = Rollout(envs, envs.reset(seed=seed)[0], rng)
    curve = []
    every_row = np.tile(np.arange(ROWS), (PASSES, 1))
    n_rollouts = max(1, total_steps // ROWS)
    for i in range(n_rollouts):
        rollout.collect(policy, curve, i * ROWS)
        advantages, returns = rollout.advantages(policy)
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        left = 1 - i / n_rollouts
        trainer.set_lr(LEARNING_RATE * left)
        trainer.step_many([
            rollout.observations.reshape(ROWS, 4),
            np.eye(N_ACTIONS, dtype=np.float32)[rollout.actions.ravel()],
            advantages.ravel(), rollout.log_probs.ravel(), returns.ravel(),
            np.full(ROWS, CLIP * left, np.float32)], idx=every_row)
        if verbose and (i + 1) % EVALUATE_EVERY == 0:
            print(f"step {(i + 1) * ROWS:6d}  return of the last episodes "
                  f"{np.mean([r for _, r in curve[-20:]]):6.1f}", flush=True)
    envs.close()
    target = policy.snapshot()
    policy.free()
    trainer.free()
    return target, curve


def plot(curve, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    steps, returns = np.array(curve).T
    width = min(20, len(returns))
    smooth = np.convolve(returns, np.ones(width) / width, "valid")
    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    axes.plot(steps, returns, ".", color="0.8", label="episode")
    axes.plot(steps[width - 1:], smooth, label=f"mean of {width}")
    axes.set(xlabel="environment steps", ylabel="return", title="PPO, CartPole-v1")
    axes.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=TOTAL_STEPS)
    parser.add_argument("--threads", type=int, help="by default what the process may use")
    parser.add_argument("--plot", default="ppo_cartpole.png", help="where the curve goes")
    options = parser.parse_args()
    if options.threads:
        pyggml.set_num_threads(options.threads)
    started = time.perf_counter()
    policy, curve = train(options.seed, options.steps)
    seconds = time.perf_counter() - started
    if curve:
        plot(curve, options.plot)
    returns = evaluate(policy, 20, seed=20_000 + options.seed)
    print(f"seed {options.seed}: mean return {returns.mean():.1f} over {len(returns)} episodes, "
          f"trained on {options.steps} steps in {seconds:.0f} s")


if __name__ == "__main__":
    main()
