import sys

if sys.platform == "win32":
    from . import _dlls  # noqa: F401
