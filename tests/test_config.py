import importlib.metadata
import re

from pyggml import _config


def test_version_is_that_of_the_distribution():
    assert importlib.metadata.version("pyggml") == _config.VERSION


def test_ggml_is_of_the_minor_version_written_for():
    assert _config.GGML_VERSION.startswith(_config.GGML_MINOR + ".")
    assert _config.GGML_SOURCE in ("wheel", "system", "subproject")
    assert _config.BLAS_SOURCE in ("scipy-openblas", "system", "none")


def test_no_folder_of_the_build_machine_in_the_report():
    values = [v for k, v in vars(_config).items() if k.isupper()]
    assert values and not [v for v in values if re.search(r"[/\\]", v)]
