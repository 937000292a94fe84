"""Step rules of the optimizers on lists of float64 weights.

Weight decay is decoupled: w is multiplied by 1 - lr * weight_decay before the update (Loshchilov
and Hutter 2019). Defaults are Keras', except Adam's epsilon, which is ggml's.
"""

import abc

import numpy as np

from .common import float64


def clip_gradients(grads, clipnorm=None, clipvalue=None, global_clipnorm=None):
    """At most one of: norm of each gradient, each element, norm of all gradients together."""
    if sum(limit is not None for limit in (clipnorm, clipvalue, global_clipnorm)) > 1:
        raise ValueError("only one of clipnorm, clipvalue, global_clipnorm")
    if clipnorm is not None:
        return [g * clipnorm / max(np.sqrt(np.sum(g * g)), clipnorm) for g in grads]
    if clipvalue is not None:
        return [np.clip(g, -clipvalue, clipvalue) for g in grads]
    if global_clipnorm is not None:
        norm = np.sqrt(sum(np.sum(g * g) for g in grads))
        return [g * global_clipnorm / max(norm, global_clipnorm) for g in grads]
    return grads


class Optimizer(abc.ABC):
    """``step(weights, grads)`` returns the new weights. ``lr`` may be changed between steps.

    ``trainable`` and ``decayed`` are booleans, one per weight (None: all True); a weight that is
    not trainable is neither updated, decayed nor counted in a global norm.
    """

    def __init__(
        self, lr=1e-3, weight_decay=0.0, clipnorm=None, clipvalue=None, global_clipnorm=None
    ):
        self.lr = lr
        self.weight_decay = weight_decay
        self.clip = (clipnorm, clipvalue, global_clipnorm)
        self.iterations = 0
        self.state = None  # a dictionary of arrays for each weight

    def slots(self, w):
        """State of one weight before the first step."""
        return {}

    @abc.abstractmethod
    def update(self, g, state):
        """What is subtracted from the weight; changes ``state``."""

    def step(self, weights, grads, trainable=None, decayed=None):
        weights = [float64(w) for w in weights]
        grads = [float64(g) for g in grads]
        moving = [True] * len(weights) if trainable is None else list(trainable)
        decayed = [True] * len(weights) if decayed is None else list(decayed)
        if self.state is None:
            self.state = [self.slots(w) for w in weights]
        self.iterations += 1
        used = [g for g, moves in zip(grads, moving, strict=True) if moves]
        clipped = iter(clip_gradients(used, *self.clip))

        new = []
        for w, state, moves, decays in zip(weights, self.state, moving, decayed, strict=True):
            if moves:
                shrink = 1.0 - self.lr * self.weight_decay if decays else 1.0
                w = w * shrink - self.update(next(clipped), state)
            new.append(w)
        return new


class SGD(Optimizer):
    """Keras' velocity = momentum * velocity - lr * g; Nesterov looks one step ahead."""

    def __init__(self, lr=1e-3, momentum=0.0, nesterov=False, **common):
        super().__init__(lr, **common)
        self.momentum, self.nesterov = momentum, nesterov

    def slots(self, w):
        return {"velocity": np.zeros_like(w)}

    def update(self, g, state):
        state["velocity"] = self.momentum * state["velocity"] - self.lr * g
        if self.nesterov:
            return self.lr * g - self.momentum * state["velocity"]
        return -state["velocity"]


class Adam(Optimizer):
    """Kingma and Ba 2015, with bias correction: lr * m_hat / (sqrt(v_hat) + epsilon)."""

    def __init__(self, lr=1e-3, beta_1=0.9, beta_2=0.999, epsilon=1e-8, **common):
        super().__init__(lr, **common)
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon

    def slots(self, w):
        return {"m": np.zeros_like(w), "v": np.zeros_like(w)}

    def update(self, g, state):
        state["m"] = self.beta_1 * state["m"] + (1.0 - self.beta_1) * g
        state["v"] = self.beta_2 * state["v"] + (1.0 - self.beta_2) * g * g
        m = state["m"] / (1.0 - self.beta_1**self.iterations)
        v = state["v"] / (1.0 - self.beta_2**self.iterations)
        return self.lr * m / (np.sqrt(v) + self.epsilon)


class AdamW(Adam):
    """The same rule: here every optimizer's weight decay is decoupled."""


class RMSprop(Optimizer):
    """Tieleman and Hinton 2012; epsilon inside the root, momentum on the increment (Keras)."""

    def __init__(self, lr=1e-3, rho=0.9, momentum=0.0, epsilon=1e-7, centered=False, **common):
        super().__init__(lr, **common)
        self.rho, self.momentum, self.epsilon, self.centered = rho, momentum, epsilon, centered

    def slots(self, w):
        return {name: np.zeros_like(w) for name in ("velocity", "mean", "momentum")}

    def update(self, g, state):
        state["velocity"] = self.rho * state["velocity"] + (1.0 - self.rho) * g * g
        variance = state["velocity"]
        if self.centered:
            state["mean"] = self.rho * state["mean"] + (1.0 - self.rho) * g
            variance = variance - state["mean"] ** 2
        increment = self.lr * g / np.sqrt(variance + self.epsilon)
        state["momentum"] = self.momentum * state["momentum"] + increment
        return state["momentum"]


class Adagrad(Optimizer):
    """Duchi et al. 2011; epsilon inside the root (Keras)."""

    def __init__(self, lr=1e-3, initial_accumulator_value=0.1, epsilon=1e-7, **common):
        super().__init__(lr, **common)
        self.initial, self.epsilon = initial_accumulator_value, epsilon

    def slots(self, w):
        return {"accumulator": np.full_like(w, self.initial)}

    def update(self, g, state):
        state["accumulator"] = state["accumulator"] + g * g
        return self.lr * g / np.sqrt(state["accumulator"] + self.epsilon)


class Lion(Optimizer):
    """Chen et al. 2023, "Symbolic discovery of optimization algorithms"."""

    def __init__(self, lr=1e-3, beta_1=0.9, beta_2=0.99, **common):
        super().__init__(lr, **common)
        self.beta_1, self.beta_2 = beta_1, beta_2

    def slots(self, w):
        return {"m": np.zeros_like(w)}

    def update(self, g, state):
        direction = np.sign(self.beta_1 * state["m"] + (1.0 - self.beta_1) * g)
        state["m"] = self.beta_2 * state["m"] + (1.0 - self.beta_2) * g
        return self.lr * direction


OPTIMIZERS = {
    "sgd": SGD,
    "adam": Adam,
    "adamw": AdamW,
    "rmsprop": RMSprop,
    "adagrad": Adagrad,
    "lion": Lion,
}
