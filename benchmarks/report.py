"""Tables in Markdown of what was measured, and what was wrong."""

from statistics import median

from benchmarks import peers


def titles():
    return {key: peers.load(key).NAME for key in peers.PEERS}


def fastest(result, key):
    """The entry of a peer's fastest form, or None."""
    timed = [e for e in result["entries"] if e["peer"] == key and e.get("seconds")]
    return min(timed, key=lambda e: median(e["seconds"]), default=None)


def baseline(result):
    """Our first form: what ratios are against."""
    return next((e for e in result["entries"] if e["peer"] == "pyggml" and e.get("seconds")), None)


def ratio(result, key):
    """How many times longer the fastest form of a peer takes than pyggml; None where one lacks."""
    theirs, ours = fastest(result, key), baseline(result)
    if theirs is None or ours is None:
        return None
    return median(theirs["seconds"]) / median(ours["seconds"])


def problems(report):
    """Sentences on all that failed or did not agree."""
    found = list(report["failed"])
    for result in report["results"]:
        where = f"{result['workload']} ({result['threads']} threads)"
        for e in result["entries"]:
            name = f"{where}, {titles()[e['peer']]}, {e['form']}"
            # torch.compile may fail: it is timed where it works.
            if "error" in e and not e["form"].startswith("torch.compile"):
                found.append(f"{name}: {e['error']}")
            if e.get("agrees") is False:
                found.append(f"{name}: differs from the first contestant by {e['difference']:.1e}, "
                             f"allowed is {result['tolerance']:.0e}")
    return found


def table(rows):
    """Markdown from lists of cells, the first being the heading."""
    head, *body = rows
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *body]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def duration(seconds):
    for limit, unit, factor in ((1e-3, "µs", 1e6), (1, "ms", 1e3)):
        if seconds < limit:
            return f"{_digits(seconds * factor)} {unit}"
    return f"{_digits(seconds)} s"


def _digits(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def size(n):
    return f"{n / 1e6:,.0f} MB"


def times(results, keys):
    """One row a workload: pyggml's time, then the fastest form of each peer and its ratio."""
    rows = [["", "pyggml", *(titles()[k] for k in keys if k != "pyggml")]]
    for result in results:
        ours = baseline(result)
        cells = [result["title"], duration(median(ours["seconds"])) if ours else "failed"]
        for key in keys:
            if key != "pyggml":
                cells.append(_cell(result, key))
        rows.append(cells)
    return table(rows)


def _cell(result, key):
    best = fastest(result, key)
    if best is None:
        mine = [e for e in result["entries"] if e["peer"] == key]
        return "failed" if any("error" in e for e in mine) else ""
    mark = "" if all(e.get("agrees", True) for e in result["entries"] if e["peer"] == key) \
        else " **differs**"
    value = ratio(result, key)
    return duration(median(best["seconds"])) + (f" ({value:.2f}x)" if value else "") + mark


def forms(results):
    """Every form that was timed, with its spread and its difference from the first."""
    rows = [["workload, threads", "form", "median", "quartiles", "difference"]]
    for result in results:
        for e in result["entries"]:
            name = f"{titles()[e['peer']]}, {e['form']}"
            where = f"{result['workload']}, {result['threads']}"
            if e.get("seconds"):
                ordered = sorted(e["seconds"])
                low, high = ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]
                rows.append([where, name, duration(median(ordered)),
                             f"{duration(low)} to {duration(high)}",
                             f"{e['difference']:.0e}" + ("" if e["agrees"] else " **differs**")])
            else:
                rows.append([where, name, e.get("error") or e.get("unsupported", ""), "", ""])
    return table(rows)


def once(report, keys):
    """Import, memory and size: one row each."""
    rows = [["", *(titles()[k] for k in keys)]]
    trained = "training" if report["quick"] else "training 784-128-10"
    for label, name, show in (("import", "import_seconds", lambda v: duration(median(v))),
                              (f"peak memory of {trained}", "memory_bytes", size),
                              ("installed, with all it needs", "installed_bytes", size)):
        values = report.get(name)
        if not values:
            continue
        plain = {k: median(v) if isinstance(v, list) else v for k, v in values.items()}
        cells = [label]
        for key in keys:
            value = values.get(key)
            ours = plain.get("pyggml")
            cells.append("failed" if value is None else show(value) + (
                f" ({plain[key] / ours:.1f}x)" if key != "pyggml" and ours else ""))
        rows.append(cells)
    return table(rows) if len(rows) > 1 else ""


MARKS = ("<!-- benchmarks -->\n", "<!-- end of benchmarks -->\n")


def between_marks(page, text):
    """The page with this text in the place for it; ValueError where it has none."""
    before, begin, rest = page.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not end:
        raise ValueError(f"there are no lines {MARKS[0].strip()} and {MARKS[1].strip()}")
    return before + begin + text + end + after


def markdown(report, forms_too=True):
    """The whole report, or without the table of all forms."""
    keys, m = report["peers"], report["machine"]
    versions = {"Python": m["python"]} | m["versions"]
    parts = [f"{m['processor']}, {m['processors']} processors, {m['system']}; "
             + ", ".join(f"{k} {v}" for k, v in versions.items()) + ".",
             f"Medians of {report['rounds']} blocks in turn. In brackets: how many times longer "
             "the fastest form of a peer takes than pyggml."]
    if report["clock"] == "cpu":
        parts.append("Times are those that the process was on a processor.")
    shares = [r["others_share"] for r in report["results"] if r["others_share"] is not None]
    if shares:
        parts.append(f"Other programs used {100 * median(shares):.0f} % of the processors "
                     f"meanwhile (median of the workloads; at most {100 * max(shares):.0f} %).")
    if report["quick"]:
        parts.append("Quick form: the sizes are toys and the times mean nothing.")
    for threads in sorted({r["threads"] for r in report["results"]}):
        mine = [r for r in report["results"] if r["threads"] == threads]
        parts += [f"### {threads} thread{'s' * (threads > 1)}", times(mine, keys)]
    single = once(report, keys)
    if single:
        parts += ["### Beside training", single]
    if report.get("step_overhead"):
        o = report["step_overhead"]
        parts.append(f"`Trainer.step` on a network of one weight: {o['step'] * 1e6:.2f} µs, of "
                     f"which {(o['step'] - o['many']) * 1e6:.2f} µs are not there in `step_many` "
                     "and are Python's share.")
    if report["results"] and forms_too:
        parts += ["### All forms", forms(report["results"])]
    wrong = problems(report)
    if wrong:
        parts += ["### Failed", "\n".join(f"- {line}" for line in wrong)]
    return "\n\n".join(parts) + "\n"
