"""Run random programs over pyggml for as long as you like.

    python tools/fuzz.py --minutes 480 --seed 1

Each program is a few dozen statements on models, trainers, snapshots, contexts and data sets, in
a child process, with the lowering on and off and on 1, 2 and 4 threads. One that ends the process,
hangs, raises what is not documented or leaves something half changed is written to a script that
runs by itself; the run goes on with the next. The exit status is 1 if there was any.
"""

import argparse
import itertools
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from random_programs.run import Failure, run
from random_programs.session import script

MODES = [{"PYGGML_LOWERING": lowering, "PYGGML_NUM_THREADS": str(threads)}
         for lowering in "110" for threads in (1, 2, 4)]
BATCH = 40  # programs a child


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--statements", type=int, default=30)
    parser.add_argument("--out", type=Path, default=Path("fuzz-failures"))
    given = parser.parse_args()
    end = time.monotonic() + 60 * given.minutes
    seed, programs, failures = given.seed, 0, 0
    for mode in itertools.cycle(MODES):
        if time.monotonic() >= end:
            break
        last = seed + BATCH
        while seed < last and time.monotonic() < end:
            try:
                run(seed, last - seed, given.statements, mode)
            except Failure as failure:
                failures += 1
                given.out.mkdir(exist_ok=True)
                path = given.out / f"program_{failure.seed}.py"
                setting = "".join(f"os.environ[{k!r}] = {v!r}\n" for k, v in mode.items())
                notes = "".join(f"# {line}\n" for line in str(failure).splitlines())
                path.write_text(notes + "import os\n" + setting + script(failure.lines),
                                encoding="utf-8")
                print(f"{path}: {str(failure).splitlines()[0]}", flush=True)
                programs += failure.seed + 1 - seed
                seed = failure.seed + 1
            else:
                programs += last - seed
                seed = last
        print(f"{programs} programs, {failures} failures", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    if os.name == "nt":
        sys.exit("needs a system with process limits")
    sys.exit(main())
