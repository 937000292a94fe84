"""``python -m benchmarks``: runs with what is installed, and tells when something differs."""

import importlib.util
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
HERE = ROOT / "benchmarks"


@pytest.fixture(scope="module")
def benchmarks():
    """The package, loaded from its folder: beside it lies pyggml's source."""
    if "benchmarks" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "benchmarks", HERE / "__init__.py", submodule_search_locations=[str(HERE)])
        sys.modules["benchmarks"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["benchmarks"])
    return lambda name: importlib.import_module(f"benchmarks.{name}")


def command(*arguments, timeout=900):
    return subprocess.run([sys.executable, "-m", "benchmarks", *arguments], cwd=ROOT,
                          capture_output=True, text=True, timeout=timeout, check=False)


def test_quick_runs_with_the_peers_that_are_installed_and_all_agree(tmp_path, benchmarks):
    done = command("--quick", "--output", str(tmp_path))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    report = json.loads((tmp_path / "benchmarks.json").read_text())
    assert report["problems"] == []
    assert (tmp_path / "benchmarks.md").read_text() in done.stdout
    peers = benchmarks("peers")
    installed = [key for key in peers.PEERS if not peers.missing(key)]
    assert report["peers"] == installed
    for key in set(peers.PEERS) - set(installed):
        assert f"{peers.load(key).NAME}: left out" in done.stdout
    workloads = benchmarks("workloads").workloads(quick=True)
    assert [r["workload"] for r in report["results"]] == list(workloads)
    for result in report["results"]:
        for entry in result["entries"]:
            assert "unsupported" in entry or (len(entry["seconds"]) == 2 and entry["agrees"]
                                              and min(entry["seconds"]) > 0), entry
    assert set(report["import_seconds"]) == {*installed, "numpy"}
    assert all(n > 1e6 for n in [*report["memory_bytes"].values(),
                                 *report["installed_bytes"].values()])
    assert report["step_overhead"]["many"] > 0


@pytest.mark.parametrize("arguments, message", [
    (["--only", "nothing"], "--only nothing"),
    (["--threads", "100000"], "--threads 100000"),
    (["--rounds", "-1"], "--rounds"),
    (["--peers", "theano"], "theano"),
    (["--clock", "cpu", "--threads", "1", "1"], "--clock cpu"),
])
def test_a_wrong_argument_is_named(arguments, message):
    done = command(*arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_only_runs_what_begins_so(tmp_path):
    done = command("--quick", "--only", "dense", "--peers", "pyggml", "--output", str(tmp_path))
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "benchmarks.json").read_text())
    assert [r["workload"] for r in report["results"]] == ["dense-quick-mse", "dense-quick"]
    assert "import_seconds" not in report


def test_a_contestant_that_computes_something_else_is_a_problem(benchmarks, monkeypatch):
    pytest.importorskip("sklearn")
    worker, peer = benchmarks("worker"), benchmarks("peers").load("sklearn")
    build = peer.build
    monkeypatch.setattr(peer, "build", lambda *args, **options: build(
        *args, **options).set_params(learning_rate_init=1.1e-3))
    workload = benchmarks("workloads").workloads(quick=True)["dense-quick"]
    result = worker.contest(workload, {"peers": ["pyggml", "sklearn"], "quick": True,
                                       "rounds": 1, "threads": 1, "clock": "wall",
                                       "compiled": False})
    assert [e["agrees"] for e in result["entries"]] == [True, False]

    report = benchmarks("report")
    found = {"results": [result], "failed": []}
    [problem] = report.problems(found)
    assert "scikit-learn, partial_fit: differs" in problem
    assert "**differs**" in report.times([result], ["pyggml", "sklearn"])

    cli = importlib.import_module("benchmarks.__main__")
    monkeypatch.setattr(benchmarks("children"), "run", lambda *args, **options: {
        "results": [result], "limited": True})
    assert cli.main(["--quick", "--only", "dense", "--peers", "pyggml"]) == 1


def test_a_child_that_ends_otherwise_is_a_problem(benchmarks, monkeypatch):
    children = benchmarks("children")
    monkeypatch.setattr(children, "boot", lambda module: "import sys; sys.exit(3)")
    cli = importlib.import_module("benchmarks.__main__")
    assert cli.main(["--quick", "--only", "dense", "--peers", "pyggml"]) == 1


def test_children_are_told_the_threads_and_no_kernel_is_forced(benchmarks, monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Prescott")
    environment = benchmarks("children").environment(2)
    assert not any(name.startswith("OPENBLAS_") for name in environment)
    assert environment["OMP_NUM_THREADS"] == "2"
    assert os.environ["OPENBLAS_CORETYPE"] == "Prescott"


def test_contestants_take_turns_and_begin_with_another_each_round(benchmarks):
    contest = benchmarks("contest")
    log = []

    def contestant(name):
        return contest.Contestant(name, "", list, lambda count: log.append(name))

    times, busy = contest.alternate([contestant(n) for n in "abc"], rounds=3, block=0)
    assert "".join(log[3:]) == "aabbccbbccaaccaabb"     # each is woken, then timed
    assert [len(t) for t in times] == [3, 3, 3]
    assert busy == 0


def test_a_block_waits_for_threads_that_spin(benchmarks):
    settle = benchmarks("contest").settle
    end = threading.Event()

    def spin():
        while not end.is_set():
            pass

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        assert not settle(0.2)
    finally:
        end.set()
        thread.join()
    assert settle(5)


def test_a_difference_is_relative_and_never_hidden_by_nan(benchmarks):
    difference = benchmarks("contest").difference
    assert difference([1.0, 2.0], [1.0, 2.02]) == pytest.approx(0.02 / 2.02)
    assert difference([np.nan], [1.0]) == np.inf
    with pytest.raises(ValueError, match="shape"):
        difference([1.0], [1.0, 1.0])


def test_no_workload_can_be_learned_by_heart(benchmarks):
    network = benchmarks("workloads").workloads(quick=True)["dense-quick"].network
    batches = network.batches(8)
    for (x, y), (again, other) in zip(batches[:4], batches[4:], strict=True):
        assert x is again
        assert (y != other).any()


def test_docs_takes_the_tables_and_leaves_the_rest_of_the_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- benchmarks -->\nold\n<!-- end of benchmarks -->\nafter\n")
    done = command("--quick", "--only", "dense", "--peers", "pyggml", "--docs", str(page))
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert text.startswith("before\n<!-- benchmarks -->\n")
    assert text.endswith("<!-- end of benchmarks -->\nafter\n")
    assert "old" not in text and "| 4-8-2, batch 8 |" in text

    page.write_text("nothing to replace")
    done = command("--quick", "--docs", str(page))
    assert done.returncode == 2 and "<!-- benchmarks -->" in done.stderr
    assert page.read_text() == "nothing to replace"


def test_the_page_has_a_place_for_the_tables(benchmarks):
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert benchmarks("report").between_marks(page, "here\n").count("here\n") == 1
