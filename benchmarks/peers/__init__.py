"""The libraries that are compared, one module each.

A module has ``NAME`` and ``PACKAGES`` (distributions: the first must be installed for the peer to
take part), ``configure(threads)``, and ``contestants(workload, compiled)``, which gives pairs of a
form's name and a function that makes its contestant; ``compiled`` says whether forms that take tens
of seconds to compile are among them. The function raises :class:`benchmarks.contest.Unsupported`
where the library cannot do it.
"""

import importlib
from importlib import metadata

_modules = {"pyggml": "ours", "torch": "pytorch", "keras": "keras_jax", "jax": "plain_jax",
            "sklearn": "sklearn_mlp"}
PEERS = tuple(_modules)


def load(key):
    """Return the module of a peer; it imports its library only when it is configured."""
    return importlib.import_module(f"benchmarks.peers.{_modules[key]}")


def missing(key):
    """Return the packages of a peer that are not installed."""
    absent = []
    for package in load(key).PACKAGES:
        try:
            metadata.version(package)
        except metadata.PackageNotFoundError:
            absent.append(package)
    return absent
