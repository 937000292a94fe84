"""A small network of Dense layers, trained step by step in float64."""

from .activations import activation
from .common import float64
from .dense import dense
from .losses import loss
from .optimizers import OPTIMIZERS, Optimizer

# a last activation and its loss that are computed together from the logits
_FUSED = {
    ("softmax", "categorical_crossentropy"),
    ("softmax", "sparse_categorical_crossentropy"),
    ("softmax", "categorical_focal_crossentropy"),
    ("sigmoid", "binary_crossentropy"),
    ("sigmoid", "binary_focal_crossentropy"),
}


class MLP:
    """Dense layers with weights [kernel, bias, kernel, bias, ...] and one activation for each.

    ``optimizer`` is a name or an Optimizer. ``accumulate`` batches make one update, by the mean of
    their gradients. ``loss_options`` go to the loss.
    """

    def __init__(
        self, weights, activations, loss="mse", optimizer="adam", accumulate=1, **loss_options
    ):
        self.weights = [float64(w).copy() for w in weights]
        self.activations = list(activations)
        self.loss_name, self.loss_options = loss, loss_options
        self.optimizer = optimizer if isinstance(optimizer, Optimizer) else OPTIMIZERS[optimizer]()
        self.accumulate = accumulate
        self._sums, self._count = None, 0
        self._fused = (self.activations[-1], loss) in _FUSED

    def _forward(self, x):
        """Output (logits where the loss takes them), and each layer's backward."""
        names = [*self.activations[:-1], "linear" if self._fused else self.activations[-1]]
        backwards = []
        pairs = zip(self.weights[::2], self.weights[1::2], names, strict=True)
        for kernel, bias, name in pairs:
            x, backward = dense(x, kernel, bias, name)
            backwards.append(backward)
        return x, backwards

    def _loss(self, y, out, sample_weight):
        options = dict(self.loss_options, from_logits=True) if self._fused else self.loss_options
        return loss(self.loss_name, y, out, sample_weight, **options)

    def predict(self, x):
        out, _ = self._forward(float64(x))
        return activation(self.activations[-1], out) if self._fused else out

    def evaluate(self, x, y, sample_weight=None):
        return self._loss(y, self._forward(float64(x))[0], sample_weight).total

    def gradients(self, x, y, sample_weight=None):
        """(loss, gradients in the order of the weights)."""
        out, backwards = self._forward(float64(x))
        result = self._loss(y, out, sample_weight)
        grads, d = [], result.grad
        for backward in reversed(backwards):
            layer = backward(d)
            grads[:0] = [layer["kernel"], layer["bias"]]
            d = layer["x"]
        return result.total, grads

    def step(self, x, y, sample_weight=None, **frozen):
        """One batch; returns its loss before the update. ``frozen`` goes to Optimizer.step."""
        total, grads = self.gradients(x, y, sample_weight)
        if self._count:
            grads = [a + b for a, b in zip(self._sums, grads, strict=True)]
        self._sums = grads
        self._count += 1
        if self._count == self.accumulate:
            mean = [g / self.accumulate for g in self._sums]
            self.weights = self.optimizer.step(self.weights, mean, **frozen)
            self._sums, self._count = None, 0
        return total

    def train(self, batches, steps, **frozen):
        """Cycle through a list of (x, y) or (x, y, sample_weight); returns all losses."""
        return [self.step(*batches[i % len(batches)], **frozen) for i in range(steps)]
