"""What a child process does: all contestants of some workloads, on one number of threads."""

import json
import os
import sys
import time
import traceback

from benchmarks import machine, peers
from benchmarks.contest import TOLERANCE, Unsupported, alternate, difference
from benchmarks.workloads import workloads


def main(options):
    """Run the workloads that the options name and write what was found to their "out" file."""
    limited = machine.limit_processors(options["threads"])
    for key in options["peers"]:
        peers.load(key).configure(options["threads"])
    available = workloads(options["quick"])
    report = {"limited": limited, "results": []}
    for name in options["workloads"]:
        report["results"].append(contest(available[name], options))
    with open(options["out"], "w") as f:
        json.dump(report, f)
    sys.stdout.flush()
    os._exit(0)     # threads and caches of five libraries need not be put away


def contest(workload, options):
    """Build, check and time all contestants of one workload."""
    ready, entries = [], []
    for key in options["peers"]:
        for form, make in peers.load(key).contestants(workload, options["compiled"]):
            entry = {"peer": key, "form": form}
            entries.append(entry)
            begun = time.perf_counter()
            try:
                contestant = make()
                entry["values"] = [float(v) for v in _flat(contestant.check())]
            except Unsupported as reason:
                entry["unsupported"] = str(reason)
                continue
            except Exception as error:
                traceback.print_exc()
                entry["error"] = f"{type(error).__name__}: {error}".splitlines()[0][:300]
                continue
            entry["first_seconds"] = time.perf_counter() - begun
            ready.append((entry, contestant))
    compare(workload, [entry for entry, _ in ready])
    load = machine.OtherLoad()
    times, busy = alternate([c for _, c in ready], options["rounds"],
                            0 if options["quick"] else options["block"], options["clock"])
    for (entry, _), seconds in zip(ready, times, strict=True):
        entry["seconds"] = seconds
    return {"workload": workload.name, "title": workload.title, "kind": workload.kind,
            "threads": options["threads"], "tolerance": TOLERANCE[workload.kind],
            "others_share": load.share(), "busy_blocks": busy, "entries": entries}


def compare(workload, entries):
    """Note how far each is from the first; keep the values themselves only where they are few."""
    if not entries:
        return
    expected = entries[0]["values"]
    for entry in entries:
        entry["difference"] = difference(entry["values"], expected)
        entry["agrees"] = entry["difference"] <= TOLERANCE[workload.kind]
    for entry in entries:
        if len(entry["values"]) > 100:
            del entry["values"]


def _flat(values):
    return values.ravel() if hasattr(values, "ravel") else values
