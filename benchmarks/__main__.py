"""Time pyggml beside other libraries, and check that all of them compute the same."""

import argparse
import json
import sys
import time
from pathlib import Path

from benchmarks import children, machine, peers, processes, report
from benchmarks.workloads import workloads

EXTRAS = ("import", "memory", "size", "overhead")


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__,
        epilog="Exits with 1 where a contestant fails or computes something else.")
    parser.add_argument("--quick", action="store_true",
                        help="toy sizes, two rounds, one thread: shows what is broken, not times")
    parser.add_argument("--only", action="append", metavar="NAME", default=[],
                        help="workloads whose names begin so; may be given several times")
    parser.add_argument("--threads", type=int, nargs="+", metavar="N",
                        help="default: 1 and 2, as far as there are processors")
    parser.add_argument("--rounds", type=int, metavar="N",
                        help="blocks timed of each contestant (default: 15; 2 with --quick)")
    parser.add_argument("--block", type=float, default=0.05, metavar="SECONDS",
                        help="work in one block (default: 0.05)")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall",
                        help="cpu: time on processors, which others' programs disturb less; "
                             "with one thread only, where it is all there is to wait for")
    parser.add_argument("--peers", nargs="+", choices=peers.PEERS, default=peers.PEERS,
                        metavar="NAME", help=f"of {', '.join(peers.PEERS)} (default: all)")
    parser.add_argument("--no-compile", action="store_true",
                        help="leave out torch.compile, which takes most of the time")
    parser.add_argument("--list", action="store_true", help="print the workloads' names and end")
    parser.add_argument("--output", type=Path, metavar="FOLDER",
                        help="where benchmarks.md and benchmarks.json go (default: only printed)")
    parser.add_argument("--docs", type=Path, metavar="FILE",
                        help="page whose tables are replaced by those of this run")
    options = parser.parse_args(arguments)
    if options.docs:
        try:
            report.between_marks(options.docs.read_text(encoding="utf-8"), "")
        except (OSError, ValueError) as error:
            parser.error(f"--docs {options.docs}: {error}")
    count = len(machine.processors())
    options.threads = options.threads or ([1] if options.quick else [1, 2][:count])
    for n in options.threads:
        if not 1 <= n <= count:
            parser.error(f"--threads {n}: this process may use {count} processors")
    if options.clock == "cpu" and options.threads != [1]:
        parser.error("--clock cpu needs --threads 1")
    options.rounds = options.rounds or (2 if options.quick else 15)
    if options.rounds < 1:
        parser.error(f"--rounds must be positive, got {options.rounds}")
    names = [*workloads(options.quick), *EXTRAS]
    for name in options.only:
        if not any(known.startswith(name) for known in names):
            parser.error(f"--only {name}: no workload begins so; there are {', '.join(names)}")
    options.names = [n for n in names
                     if not options.only or any(n.startswith(o) for o in options.only)]
    return options


def present(keys):
    """The peers that are installed; a line for each that is not."""
    found = []
    for key in (k for k in peers.PEERS if k in keys):    # pyggml first: it is what others meet
        absent = peers.missing(key)
        if absent:
            print(f"{peers.load(key).NAME}: left out, {', '.join(absent)} not installed",
                  flush=True)
        else:
            found.append(key)
    return found


def compare(options, found):
    """Run the workloads, each in a process of its own; the quick ones share one."""
    names = [n for n in options.names if n not in EXTRAS]
    groups = [names] if options.quick else [[n] for n in names]
    for threads in options.threads:
        for group in filter(None, groups):
            print(f"{', '.join(group)}: {threads} thread{'s' * (threads > 1)}", flush=True)
            result = children.run("worker", {
                "workloads": group, "threads": threads, "rounds": options.rounds,
                "quick": options.quick, "peers": found["peers"], "block": options.block,
                "clock": options.clock,
                "compiled": not (options.quick or options.no_compile)}, threads)
            if result is None:
                found["failed"].append(f"{', '.join(group)} ({threads} threads): no result")
                continue
            found["results"] += result["results"]
            found["limited"] = result["limited"]
            save(options, found)


def extras(options, found):
    """What is measured once, or in processes of its own."""
    keys = found["peers"]
    if "import" in options.names:
        print("import", flush=True)
        found["import_seconds"] = processes.import_times(
            keys, 1 if options.quick else options.rounds, options.clock)
    if "memory" in options.names:
        print("memory", flush=True)
        name = "dense-quick" if options.quick else "dense-784-128"
        found["memory_bytes"] = processes.memory(keys, name, options.quick)
        found["failed"] += [f"memory of {k}: no result"
                            for k, v in found["memory_bytes"].items() if v is None]
    if "size" in options.names:
        found["installed_bytes"] = processes.sizes(keys)
    if "overhead" in options.names and "pyggml" in keys:
        print("overhead", flush=True)
        found["step_overhead"] = children.run(
            "step_overhead", {"quick": options.quick, "clock": options.clock}, 1)
        if found["step_overhead"] is None:
            found["failed"].append("overhead: no result")


def save(options, found):
    """Write what there is so far, so that a run which is stopped leaves something."""
    found["problems"] = report.problems(found)
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "benchmarks.md").write_text(report.markdown(found), encoding="utf-8")
        (options.output / "benchmarks.json").write_text(json.dumps(found, indent=1) + "\n")


def main(arguments=None):
    options = parse(arguments)
    if options.list:
        print("\n".join(options.names))
        return 0
    begun = time.perf_counter()
    keys = present(options.peers)
    packages = dict.fromkeys(p for k in keys for p in peers.load(k).PACKAGES)
    found = {"machine": machine.describe(["numpy", *packages]), "peers": keys,
             "rounds": options.rounds, "quick": options.quick,
             "clock": options.clock, "results": [], "failed": []}
    compare(options, found)
    extras(options, found)
    found["minutes"] = (time.perf_counter() - begun) / 60
    save(options, found)
    print(report.markdown(found))
    if options.docs:
        page = options.docs.read_text(encoding="utf-8")
        options.docs.write_text(
            report.between_marks(page, report.markdown(found, forms_too=False)), encoding="utf-8")
    return 1 if found["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
