"""The agents run, plot their curves, and learn what the documents say they learn."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples" / "rl"


def run_agent(name, tmp_path, *arguments, timeout=600):
    pytest.importorskip("gymnasium")
    pytest.importorskip("matplotlib")
    picture = tmp_path / "curve.png"
    result = subprocess.run(
        [sys.executable, EXAMPLES / name, "--plot", picture, "--threads", "1", *arguments],
        cwd=tmp_path, timeout=timeout, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-4000:]
    assert picture.read_bytes().startswith(b"\x89PNG")
    return float(re.search(r"mean return (-?[\d.]+) over 20 episodes", result.stdout)[1])


@pytest.mark.parametrize(("name", "steps", "least"), [
    ("dqn_cartpole.py", 1300, 0), ("ppo_cartpole.py", 2100, 0), ("sac_pendulum.py", 1300, -2000)])
def test_an_agent_runs_and_plots(name, steps, least, tmp_path):
    assert run_agent(name, tmp_path, "--steps", str(steps)) >= least


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("name", "least"), [
    ("dqn_cartpole.py", 475), ("ppo_cartpole.py", 475), ("sac_pendulum.py", -200)])
def test_an_agent_learns_its_task_for_each_seed(name, least, seed, tmp_path):
    assert run_agent(name, tmp_path, "--seed", str(seed), timeout=300) >= least
