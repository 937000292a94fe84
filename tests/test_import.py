"""What ``import pyggml`` brings, and what it must not bring."""

from child import run_child

import pyggml


def test_every_public_name_is_there_and_documented():
    for name in pyggml.__all__:
        value = getattr(pyggml, name)
        assert value.__doc__, name


def test_import_loads_nothing_heavy():
    loaded = run_child("""
        import sys
        import pyggml
        print(*sorted(sys.modules))
    """).split()
    for name in ("scipy", "sklearn", "matplotlib", "pandas", "tqdm", "torch", "asyncio"):
        assert name not in loaded
