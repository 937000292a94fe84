"""DQN on CartPole-v1.

Mnih et al., "Human-level control through deep reinforcement learning" (2015). The scheme is that
of rl-baselines3-zoo, and so are the hyper-parameters: collect 256 steps, then make 128 updates of
64 transitions each.

Three things of a Trainer make the loop short:

- ``loss_mask=2``: of the two outputs, only the action that was taken has a weight in the loss;
- ``snapshot()`` is the target network, and ``update_target()`` refreshes it;
- ``step_many`` runs all updates between two rollouts in one call, on rows of the buffer's arrays.

Training ends when the greedy policy has a mean return of 495, or at 50,000 steps; the best network
on the way is kept.

Run ``python dqn_cartpole.py --seed 1``; it needs ``pip install pyggml[rl]``.
"""

import argparse
import time

import gymnasium as gym
import numpy as np

import pyggml
from pyggml import layers

TOTAL_STEPS = 50_000
LEARNING_RATE = 2.3e-3
CLIP_NORM = 5.0  # of all gradients together
HIDDEN = 256
BATCH = 64
BUFFER = 100_000
LEARNING_STARTS = 1_000
GAMMA = 0.99
TRAIN_EVERY = 256  # steps of the environment
UPDATES = 128
EXPLORATION_STEPS = 8_000
EXPLORATION_END = 0.04
EVALUATE_EVERY = 5  # rollouts
SOLVED = 495
N_ACTIONS = 2


class ReplayBuffer:
    """Transitions in NumPy arrays; the oldest are overwritten."""

    def __init__(self, size, n_observations):
        self.observations = np.zeros((size, n_observations), np.float32)
        self.next_observations = np.zeros((size, n_observations), np.float32)
        self.taken = np.zeros((size, N_ACTIONS), np.float32)  # 1 for the action, 0 for others
        self.rewards = np.zeros(size, np.float32)
        self.terminated = np.zeros(size, np.float32)
        self.values = np.zeros((size, N_ACTIONS), np.float32)  # what is learned
        self.size, self.used, self.at = size, 0, 0

    def add(self, observation, action, reward, next_observation, terminated):
        self.observations[self.at] = observation
        self.next_observations[self.at] = next_observation
        self.taken[self.at] = 0.0
        self.taken[self.at, action] = 1.0
        self.rewards[self.at] = reward
        self.terminated[self.at] = terminated
        self.at = (self.at + 1) % self.size
        self.used = min(self.used + 1, self.size)


def dense(inputs, units, activation=None):
    """A layer whose weights and biases are uniform in +-1 / sqrt(inputs), as in PyTorch."""
    initializer = pyggml.initializers.RandomUniform(-(inputs**-0.5), inputs**-0.5)
    return layers.Dense(units, activation, kernel_initializer=initializer,
                        bias_initializer=initializer)


def make_trainer():
    model = pyggml.Sequential([
        pyggml.Input((4,)), dense(4, HIDDEN, "relu"), dense(HIDDEN, HIDDEN, "relu"),
        dense(HIDDEN, N_ACTIONS)])
    adam = pyggml.optimizers.Adam(LEARNING_RATE, global_clipnorm=CLIP_NORM)
    model.compile(optimizer=adam, loss="huber")
    return pyggml.Trainer(model, batch_size=BATCH, loss_mask=N_ACTIONS)


def learn(trainer, target, buffer, rng):
    """Make all updates between two rollouts; the target network stands still meanwhile."""
    rows = rng.integers(0, buffer.used, (UPDATES, BATCH))
    drawn = np.flatnonzero(np.bincount(rows.ravel()))  # each needs its value once
    future = target.predict(buffer.next_observations[drawn], batch_size=1024).max(axis=1)
    future *= GAMMA * (1 - buffer.terminated[drawn])
    buffer.values[drawn] = (buffer.rewards[drawn] + future)[:, np.newaxis]
    return trainer.step_many(buffer.observations, buffer.values, rows, buffer.taken)


def evaluate(network, episodes, seed):
    """Return the returns of the greedy policy; the episodes run side by side."""
    envs = gym.make_vec("CartPole-v1", num_envs=episodes, vectorization_mode="sync")
    observations, _ = envs.reset(seed=seed)
    returns, running = np.zeros(episodes), np.ones(episodes, bool)
    while running.any():
        actions = network.predict(observations).argmax(axis=1)
        observations, rewards, terminated, truncated, _ = envs.step(actions)
        returns += rewards * running
        running &= ~(terminated | truncated)
    envs.close()
    return returns


def train(seed, total_steps=TOTAL_STEPS, evaluate_every=EVALUATE_EVERY, verbose=True):
    """Train an agent.

    Parameters
    ----------
    evaluate_every : int or None
        Rollouts between two trials of the greedy policy. None: none, and all steps are made.

    Returns
    -------
    best : Snapshot
        The best network in the trials, or the last one.
    curve : list of (step, return)
        Of the episodes played while exploring.
    """
    pyggml.set_seed(seed)
    rng = np.random.default_rng(seed)
    env = gym.make("CartPole-v1")
    buffer = ReplayBuffer(BUFFER, 4)
    curve, best_mean, total = [], -np.inf, 0.0
    with make_trainer() as trainer:
        target, best = trainer.snapshot(), trainer.snapshot()
        observation, _ = env.reset(seed=seed)
        for step in range(1, total_steps + 1):
            share = min(1, step / EXPLORATION_STEPS)
            if rng.random() < 1 + share * (EXPLORATION_END - 1):
                action = int(rng.integers(N_ACTIONS))
            else:
                action = int(trainer.predict(observation[np.newaxis]).argmax())
            after, reward, terminated, truncated, _ = env.step(action)
            buffer.add(observation, action, reward, after, terminated)
            observation, total = after, total + reward
            if terminated or truncated:
                curve.append((step, total))
                observation, _ = env.reset()
                total = 0.0
            if step % TRAIN_EVERY or step < LEARNING_STARTS:
                continue
            losses = learn(trainer, target, buffer, rng)
            trainer.update_target(target)
            if evaluate_every is None or (step // TRAIN_EVERY) % evaluate_every:
                continue
            mean = evaluate(trainer, 10, seed=10_000 + step).mean()
            if mean > best_mean:  # what looks better is looked at more closely
                mean = evaluate(trainer, 50, seed=30_000 + step).mean()
            if verbose:
                print(f"step {step:6d}  loss {losses.mean():8.4f}  greedy return {mean:6.1f}",
                      flush=True)
            if mean > best_mean:
                best_mean = mean
                trainer.update_target(best)
            if best_mean >= SOLVED:
                break
        if best_mean == -np.inf:
            trainer.update_target(best)
    env.close()
    return best, curve


def plot(curve, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    steps, returns = np.array(curve).T
    width = min(20, len(returns))
    smooth = np.convolve(returns, np.ones(width) / width, "valid")
    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    axes.plot(steps, returns, color="0.8", label="episode")
    axes.plot(steps[width - 1:], smooth, label=f"mean of {width}")
    axes.set(xlabel="environment steps", ylabel="return", title="DQN, CartPole-v1")
    axes.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=TOTAL_STEPS)
    parser.add_argument("--threads", type=int, help="by default what the process may use")
    parser.add_argument("--plot", default="dqn_cartpole.png", help="where the curve goes")
    options = parser.parse_args()
    if options.threads:
        pyggml.set_num_threads(options.threads)
    started = time.perf_counter()
    best, curve = train(options.seed, options.steps)
    seconds = time.perf_counter() - started
    if curve:
        plot(curve, options.plot)
    returns = evaluate(best, 20, seed=20_000 + options.seed)
    print(f"seed {options.seed}: mean return {returns.mean():.1f} over {len(returns)} episodes, "
          f"trained on {curve[-1][0] if curve else options.steps} steps in {seconds:.0f} s")


if __name__ == "__main__":
    main()
