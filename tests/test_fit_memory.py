"""What the loop of fit costs in memory."""

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.slow

_epoch_of_a_map = textwrap.dedent("""
    import resource, sys
    import numpy as np, pyggml
    pyggml.set_num_threads(1)
    path, n, columns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    shuffle = sys.argv[4] == "True"
    resource.setrlimit(resource.RLIMIT_DATA, (600 << 20, 600 << 20))
    x = np.memmap(path, np.float32, "r", shape=(n, columns))
    y = np.zeros(n, np.float32)
    model = pyggml.Sequential([pyggml.Input((columns,)), pyggml.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(x, y, batch_size=64, shuffle=shuffle, validation_split=0.1, verbose=0)
    assert model.compiled.trainer.n_steps == -(-int(n * 0.9 + 1e-9) // 64)
    model.evaluate(x, y)
    assert model.predict(x).shape == (n, 1)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
""")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="measures as Linux does")
@pytest.mark.parametrize("columns", [4096, 512])
@pytest.mark.parametrize("shuffle", [False, True])
def test_peak_memory_of_a_memory_map_does_not_depend_on_its_size(tmp_path, shuffle, columns):
    peaks = []
    for size in (1 << 29, 1 << 31):
        path = tmp_path / "x.bin"
        with open(path, "wb") as f:
            f.truncate(size)  # sparse: takes no room on the disk
        # The first part is really there: such pages may be mapped 2 MB at a time.
        with open(path, "r+b") as f:
            f.write(bytes(1 << 28))
        child = subprocess.run(
            [sys.executable, "-c", _epoch_of_a_map, path, str(size // (4 * columns)),
             str(columns), str(shuffle)],
            capture_output=True, text=True, timeout=300)
        assert child.returncode == 0, child.stderr
        peaks.append(int(child.stdout) / 1024)
    assert max(peaks) < 600
    # Labels, predictions and the order of the rows do grow: by up to 16 MB.
    assert abs(peaks[1] - peaks[0]) < 40, peaks
