"""DQN on CartPole-v1, here and in stable-baselines3, with the same hyper-parameters.

Runs ``examples/rl/dqn_cartpole.py`` (without its trials on the way) and stable-baselines3's DQN in
turn, on the same number of threads and steps, and prints for both the return at the end of the
learning curve, that of the greedy policy, and the ratios of wall-clock and of processor time; on a
busy machine the second is the one to go by. The loss here is the mean over both outputs, of which
one has weight 0: half of that in stable-baselines3, and so is the norm at which gradients are
clipped. Weights, biases included, begin with the same distribution in both.

Needs ``stable-baselines3`` beside ``pyggml[rl]``. Run ``python rl_vs_sb3.py --threads 1``.
"""

import argparse
import sys
import time
from pathlib import Path

import gymnasium as gym
import numpy as np

import pyggml

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "rl"))
import dqn_cartpole as example


class Clock:
    """Seconds of wall-clock and of processor time since it was made."""

    def __init__(self):
        self.started = time.perf_counter(), time.process_time()

    def read(self):
        return time.perf_counter() - self.started[0], time.process_time() - self.started[1]


def ours(seed, steps):
    clock = Clock()
    best, curve = example.train(seed, steps, evaluate_every=None, verbose=False)
    times = clock.read()
    return times, [r for _, r in curve], example.evaluate(best, 20, 20_000 + seed).mean()


def theirs(seed, steps):
    from stable_baselines3 import DQN
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    env = Monitor(gym.make("CartPole-v1"))
    clock = Clock()
    agent = DQN(
        "MlpPolicy", env, learning_rate=example.LEARNING_RATE, buffer_size=example.BUFFER,
        learning_starts=example.LEARNING_STARTS, batch_size=example.BATCH, gamma=example.GAMMA,
        train_freq=example.TRAIN_EVERY, gradient_steps=example.UPDATES,
        target_update_interval=example.TRAIN_EVERY,
        exploration_fraction=example.EXPLORATION_STEPS / steps,
        exploration_final_eps=example.EXPLORATION_END, max_grad_norm=2 * example.CLIP_NORM,
        policy_kwargs={"net_arch": [example.HIDDEN, example.HIDDEN]}, seed=seed, device="cpu")
    agent.learn(steps)
    times = clock.read()
    mean, _ = evaluate_policy(agent, Monitor(gym.make("CartPole-v1")), n_eval_episodes=20)
    return times, env.get_episode_rewards(), mean


def main():
    import torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--threads", type=int, default=pyggml.get_num_threads())
    options = parser.parse_args()
    pyggml.set_num_threads(options.threads)
    torch.set_num_threads(options.threads)
    found = {"pyggml": [], "stable-baselines3": []}
    for seed in options.seeds:
        for name, run in (("pyggml", ours), ("stable-baselines3", theirs)):
            (wall, processor), curve, greedy = run(seed, options.steps)
            end = np.mean(curve[-20:])
            found[name].append((wall, processor, end, greedy))
            print(f"seed {seed}  {name:17}  {wall:6.1f} s, processor {processor:6.1f} s  "
                  f"last 20 episodes {end:6.1f}  greedy {greedy:6.1f}", flush=True)
    for name, runs in found.items():
        print(f"{name:17}  mean over the seeds: last 20 episodes "
              f"{np.mean([run[2] for run in runs]):.1f}, greedy "
              f"{np.mean([run[3] for run in runs]):.1f}")
    ratios = [[b / a for a, b in zip(mine[:2], other[:2], strict=True)]
              for mine, other in zip(*found.values(), strict=True)]
    wall, processor = np.median(ratios, axis=0)
    print(f"stable-baselines3 takes {wall:.2f} times as long, and {processor:.2f} times as much "
          f"processor time (medians of {len(ratios)} seeds, {options.steps} steps, "
          f"{options.threads} threads)")


if __name__ == "__main__":
    main()
