"""Exceptions between two lines of the package, as a signal's handler may raise them."""

import sys
from pathlib import Path

import pyggml

PACKAGE = str(Path(pyggml.__file__).parent)


class Interrupt(BaseException):
    """What is raised."""


def _run(call, at=None):
    """Call something, raising before line number ``at``; return how many lines were begun."""
    lines = 0

    def trace(frame, event, arg):
        nonlocal lines
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        lines += event == "line"
        if lines == at:
            raise Interrupt
        return trace

    kept = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except Interrupt:
        pass
    finally:
        sys.settrace(kept)
    return lines


def interrupt_everywhere(call, check, last=200, most=100):
    """Call something again and again, and interrupt it at another line each time.

    Parameters
    ----------
    call : callable
        Does the same every time.
    check : callable
        Called after each interrupt with the number of the line.
    last, most : int
        How many lines before the end are interrupted one by one, and how many of those before.
    """
    n = _run(call)
    assert n > 5
    early = max(n - last, 0)
    for line in [*range(1, early, early // most + 1), *range(max(early, 1), n + 1)]:
        assert _run(call, line) == line
        check(line)
