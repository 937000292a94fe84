"""What is timed: one entry for each row of the table."""

from dataclasses import dataclass

from benchmarks.networks import GRU, LSTM, Network, cnn, dense, recurrent, transformer


@dataclass(frozen=True)
class Workload:
    """A network and what is done with it.

    kind is "step" (one training step, the loop in Python), "predict" (NumPy in, NumPy out) or
    "fit" (one pass over the rows, shuffled, batch by batch).
    """

    name: str
    kind: str
    network: Network
    rows: int = 0

    @property
    def title(self):
        if self.kind == "step":
            return f"{self.network.name}, batch {self.network.batch}"
        if self.kind == "predict":
            return f"predict {self.rows:,} row{'s' * (self.rows > 1)}, {self.network.name}"
        return f"fit, {self.rows:,} rows, {self.network.name}, batch {self.network.batch}"


def _step(name, network):
    return Workload(name, "step", network)


def workloads(quick=False):
    """All workloads by name; the quick ones have the same layers on the smallest sizes."""
    if quick:
        found = [
            _step("dense-quick-mse", dense((4, 8, 2), 8, "mse")),
            _step("dense-quick", dense((9, 12, 10), 16)),
            _step("cnn-quick", cnn((8, 8, 1), (3, 4), 4)),
            _step("lstm-quick", recurrent(LSTM, 5, 4, 6, 4)),
            _step("gru-quick", recurrent(GRU, 5, 4, 6, 4)),
            _step("transformer-quick", transformer(5, 8, 2, 12, 4)),
            Workload("predict-quick", "predict", dense((9, 12, 10), 16), 50),
            Workload("fit-quick", "fit", dense((9, 12, 10), 16), 64),
        ]
    else:
        digits = dense((784, 128, 10), 32)
        found = [
            _step("dense-4", dense((4, 64, 64, 2), 32, "mse")),
            _step("dense-17", dense((17, 256, 256, 6), 256, "mse")),
            _step("dense-784-128", digits),
            _step("dense-784-500", dense((784, 500, 10), 500, rate=1e-4)),
            _step("dense-784-1024", dense((784, 1024, 1024, 10), 128, rate=1e-4)),
            _step("dense-1024-2048", dense((1024, 2048, 2048, 10), 32, rate=1e-4)),
            _step("cnn-8", cnn((28, 28, 1), (8, 16), 32)),
            _step("cnn-32", cnn((28, 28, 1), (32, 64), 32, 1e-4)),
            _step("cnn-rgb", cnn((32, 32, 3), (32, 64), 64, 1e-4)),
            _step("lstm", recurrent(LSTM, 64, 32, 128, 32)),
            _step("gru", recurrent(GRU, 64, 32, 128, 32)),
            _step("transformer", transformer(32, 64, 4, 256, 32)),
            Workload("predict-1", "predict", digits, 1),
            Workload("predict-10000", "predict", digits, 10_000),
            Workload("fit", "fit", digits, 313 * 32),
        ]
    return {w.name: w for w in found}
