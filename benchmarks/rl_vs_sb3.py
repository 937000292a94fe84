"""DQN on CartPole-v1, here and in stable-baselines3, with the same hyper-parameters.

Runs ``examples/rl/dqn_cartpole.py`` (without its trials on the way) and stable-baselines3's DQN in
turn, on the same number of threads and steps, and prints for both the return at the end of the
learning curve, that of the greedy policy, and the ratio of wall-clock times. The loss here is the
mean over both outputs, of which one has weight 0: half of that in stable-baselines3, and so is the
norm at which gradients are clipped.

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


def ours(seed, steps):
    started = time.perf_counter()
    best, curve = example.train(seed, steps, evaluate_every=None, verbose=False)
    seconds = time.perf_counter() - started
    return seconds, [r for _, r in curve], example.evaluate(best, 20, 20_000 + seed).mean()


def theirs(seed, steps):
    from stable_baselines3 import DQN
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    env = Monitor(gym.make("CartPole-v1"))
    started = time.perf_counter()
    agent = DQN(
        "MlpPolicy", env, learning_rate=example.LEARNING_RATE, buffer_size=example.BUFFER,
        learning_starts=example.LEARNING_STARTS, batch_size=example.BATCH, gamma=example.GAMMA,
        train_freq=example.TRAIN_EVERY, gradient_steps=example.UPDATES,
        target_update_interval=example.TRAIN_EVERY,
        exploration_fraction=example.EXPLORATION_STEPS / steps,
        exploration_final_eps=example.EXPLORATION_END, max_grad_norm=2 * example.CLIP_NORM,
        policy_kwargs={"net_arch": [example.HIDDEN, example.HIDDEN]}, seed=seed, device="cpu")
    agent.learn(steps)
    seconds = time.perf_counter() - started
    mean, _ = evaluate_policy(agent, Monitor(gym.make("CartPole-v1")), n_eval_episodes=20)
    return seconds, env.get_episode_rewards(), mean


def main():
    import torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--threads", type=int, default=pyggml.get_num_threads())
    options = parser.parse_args()
    pyggml.set_num_threads(options.threads)
    torch.set_num_threads(options.threads)
    ratios = []
    for seed in options.seeds:
        times = {}
        for name, run in (("pyggml", ours), ("stable-baselines3", theirs)):
            times[name], curve, greedy = run(seed, options.steps)
            print(f"seed {seed}  {name:17}  {times[name]:6.1f} s  last 20 episodes "
                  f"{np.mean(curve[-20:]):6.1f}  greedy {greedy:6.1f}", flush=True)
        ratios.append(times["stable-baselines3"] / times["pyggml"])
    print(f"stable-baselines3 takes {np.median(ratios):.2f} times as long (median of "
          f"{len(ratios)} seeds, {options.steps} steps, {options.threads} threads)")


if __name__ == "__main__":
    main()
