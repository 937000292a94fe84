"""Random programs: nothing ends the process, and only documented exceptions come out.

hypothesis chooses what the programs do and shrinks those that raise; it runs in the child process
that may crash. tools/fuzz.py runs the same programs for as long as one likes.
"""

import random

import pytest
from child import run_child
from random_programs.run import Failure, run
from random_programs.session import Session, script

CHILD = """
import sys
from hypothesis import HealthCheck, given, settings, strategies as st
from random_programs.run import play

@settings(max_examples={examples}, deadline=None, database=None, derandomize=True,
          suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def programs(rng):
    play(rng, {statements})

programs()
"""


@pytest.mark.parametrize("lowering", ["0", "1"])
@pytest.mark.parametrize("threads", ["1", "2"])
def test_no_random_program_does_what_none_may_do(lowering, threads):
    assert run_child(CHILD.format(examples=12, statements=12), timeout=570,
                     env={"PYGGML_LOWERING": lowering, "PYGGML_NUM_THREADS": threads}) == ""


@pytest.mark.parametrize("first", [100, 200])
def test_programs_of_fixed_seeds_run_to_their_end(first):
    run(first, 8, statements=25)


def test_a_program_is_the_same_for_the_same_seed_and_runs_as_a_script():
    from random_programs.run import play

    lines = play(random.Random(3), 12).lines
    assert play(random.Random(3), 12).lines == lines
    assert run_child(script(lines), timeout=300) == ""


def test_a_failing_program_is_reported_with_its_seed_and_its_statements(monkeypatch, tmp_path):
    """A fault that is put in on purpose: it has to be found."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os\n"
        "import pyggml\n"
        "def crash(self, *given, **named):\n"
        "    os.abort()\n"
        "pyggml.Model.compile = crash\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    with pytest.raises(Failure) as caught:
        run(100, 8)
    failure = caught.value
    assert 100 <= failure.seed < 108
    assert "compile" in failure.lines[-1]
    assert "Aborted" in failure.report
    assert "attempt(" in script(failure.lines)


def test_an_exception_that_is_not_documented_fails_a_program():
    session = Session(random.Random(0))
    assert session.do("raise ValueError('documented')") is False
    with pytest.raises(ZeroDivisionError):
        session.do("1 / 0")
