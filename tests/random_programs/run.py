"""Runs random programs in child processes and reports those that fail."""

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
SECONDS = 600  # for one program: many children may share the machine
ADDRESS_SPACE = 12 << 30


def play(rng, statements=30, log=None):
    """Draw and run one program in this process; returns the Session."""
    from . import comparisons, high_level, low_level, training
    from .session import Session

    session = Session(rng, log)
    low = session.chance(0.25)
    actions = (low_level.ACTIONS + high_level.EVERYWHERE if low else
               high_level.ACTIONS + high_level.EVERYWHERE + training.ACTIONS + comparisons.ACTIONS)
    weighted = [action for weight, action in actions for _ in range(weight)]
    # Something to work with; what finds nothing to do is no statement.
    first = [low_level.make_graph] if low else [high_level.make_model, high_level.make_model,
                                                high_level.make_trainer]
    for action in first:
        action(session)
    count = 0
    for _ in range(20 * statements):
        before = len(session.lines)
        with contextlib.suppress(ValueError):  # what it draws for is not built any more
            session.pick(*weighted)(session)
        count += len(session.lines) > before
        if count == statements:
            break
    session.end()
    return session


def _child(first, count, statements, log):
    import faulthandler

    import numpy as np

    sanitized = "ASAN_OPTIONS" in os.environ or "TSAN_OPTIONS" in os.environ
    # macOS refuses a limit below what it maps into every process.
    if sys.platform.startswith("linux") and not sanitized:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, resource.RLIM_INFINITY))
    np.seterr(all="ignore")
    for seed in range(first, first + count):
        with open(log, "w", encoding="utf-8") as file:

            def note(code, file=file):
                file.write(repr(code) + "\n")
                file.flush()

            note(seed)
            faulthandler.dump_traceback_later(SECONDS, exit=True)
            try:
                play(random.Random(seed), statements, note)
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(3)
            faulthandler.cancel_dump_traceback_later()
    print("done", flush=True)


class Failure(Exception):
    """A program that did what none may do.

    Attributes
    ----------
    seed : int
    lines : list of str
    report : str
    """

    def __init__(self, seed, lines, status, stderr):
        super().__init__(f"program {seed} ended with status {status} after {len(lines)} "
                         f"statements, the last {lines[-1:]}\n{stderr[-3000:]}")
        self.seed = seed
        self.lines = lines
        self.report = stderr


def run(first, count, statements=30, env=None, prefix=()):
    """Run programs of consecutive seeds in one child.

    Raises
    ------
    Failure
        The first that fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "program"
        command = [*prefix, sys.executable, "-m", "random_programs.run", "--child", str(log),
                   "--first", str(first), "--count", str(count), "--statements", str(statements)]
        done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True,
                              check=False, errors="replace",
                              env=os.environ | {"GGML_NO_BACKTRACE": "1"} | (env or {}))
        said = done.stdout.split()
        if done.returncode == 0 and said[-1:] == ["done"]:
            return
        lines = []
        if log.exists():
            import ast

            lines = [ast.literal_eval(line)
                     for line in log.read_text(encoding="utf-8").splitlines()]
        # Standard output may hold anything that the program, or a debugger at its end, printed.
        seed, *lines = lines or [first]
        raise Failure(seed, lines, done.returncode, done.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--child", required=True)
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--statements", type=int, required=True)
    given = parser.parse_args()
    _child(given.first, given.count, given.statements, given.child)
