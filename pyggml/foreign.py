"""Weights from PyTorch and Keras, given as NumPy arrays; neither package is needed."""

import re

import numpy as np

__all__ = ["load_keras_weights", "load_torch_state_dict"]

_recurrent = re.compile(r"(weight|bias)_(ih|hh)_l(\d+)(_reverse)?$")


# ---- PyTorch ------------------------------------------------------------------------------

def _gates(array, order):
    """Reorder blocks of the first axis."""
    return np.concatenate([np.split(array, len(order))[i] for i in order])


def _take(module, parameter):
    if parameter not in module:
        raise ValueError(f"it has {sorted(module)}, but {parameter!r} is needed")
    return module[parameter]


def _weight(*axes, name="kernel"):
    def rule(layer, module):
        weight = _take(module, "weight")
        if weight.ndim != len(axes):
            raise ValueError(f"its weight has shape {weight.shape}, not {len(axes)} axes")
        return {name: weight.transpose(axes),
                **({"bias": module["bias"]} if "bias" in module else {})}
    return rule


def _depthwise(layer, module):
    kernel = next(v for v in layer.weights if v.name.endswith("kernel"))
    weight = _take(module, "weight")
    height, width, channels, multiplier = kernel.shape
    if weight.shape != (channels * multiplier, 1, height, width):
        raise ValueError(f"its weight has shape {weight.shape}, not "
                         f"{(channels * multiplier, 1, height, width)}")
    weight = weight.reshape(channels, multiplier, height, width).transpose(2, 3, 0, 1)
    return {kernel.name: weight, **({"bias": module["bias"]} if "bias" in module else {})}


_norm_names = {"weight": ("gamma", "scale"), "bias": ("beta",),
               "running_mean": ("moving_mean",), "running_var": ("moving_variance",)}


def _norm(layer, module):
    have = {v.name for v in layer.weights}
    found = {}
    for parameter, array in module.items():
        names = [n for n in _norm_names.get(parameter, ()) if n in have]
        if not names:
            raise ValueError(f"its {parameter!r} has no counterpart; the layer has {sorted(have)}")
        found[names[0]] = array
    return found


def _recurrent_rule(order):
    def rule(layer, module):
        found = {"kernel": _gates(_take(module, "weight_ih"), order).T,
                 "recurrent_kernel": _gates(_take(module, "weight_hh"), order).T}
        if "bias_ih" not in module:
            return found
        inner = _gates(module["bias_ih"], order)
        hidden = _gates(_take(module, "bias_hh"), order)
        if len(order) != 3:
            return found | {"bias": inner + hidden}
        if not getattr(layer, "reset_after", True):
            raise ValueError("PyTorch applies the reset gate after the product: make the layer "
                             "with reset_after=True")
        return found | {"bias": np.stack([inner, hidden])}
    return rule


def _attention(layer, module):
    heads, found = layer.num_heads, {}
    if "in_proj_weight" in module:
        weight = module["in_proj_weight"]
        if weight.ndim != 2 or len(weight) % 3:
            raise ValueError(f"its in_proj_weight has shape {weight.shape}")
        weights = np.split(weight, 3)
    else:
        weights = [_take(module, f"{role}_proj_weight") for role in "qkv"]
    biases = np.split(module["in_proj_bias"], 3) if "in_proj_bias" in module else [None] * 3
    for role, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True):
        if weight.ndim != 2 or len(weight) % heads:
            raise ValueError(f"its {role} weight of shape {weight.shape} is not one of {heads} "
                             "heads")
        found[f"{role}_kernel"] = weight.T.reshape(weight.shape[1], heads, -1)
        if bias is not None:
            found[f"{role}_bias"] = bias.reshape(heads, -1)
    weight = _take(module, "out_proj.weight")
    found["output_kernel"] = weight.T.reshape(heads, -1, len(weight))
    if "out_proj.bias" in module:
        found["output_bias"] = module["out_proj.bias"]
    unknown = sorted(set(module) & {"bias_k", "bias_v"})
    if unknown:
        raise ValueError(f"its {unknown} have no counterpart")
    return found


# PyTorch's gates are i, f, g, o and r, z, n; ours, like Keras', i, f, c, o and z, r, h.
_rules = {
    "Dense": _weight(1, 0),
    "Conv1D": _weight(2, 1, 0),
    "Conv2D": _weight(2, 3, 1, 0),
    "Conv2DTranspose": _weight(2, 3, 1, 0),
    "DepthwiseConv2D": _depthwise,
    "Embedding": _weight(0, 1, name="embeddings"),
    "BatchNormalization": _norm,
    "LayerNormalization": _norm,
    "RMSNormalization": _norm,
    "SimpleRNN": _recurrent_rule((0,)),
    "LSTM": _recurrent_rule((0, 1, 2, 3)),
    "GRU": _recurrent_rule((1, 0, 2)),
    "MultiHeadAttention": _attention,
}


def _rule_for(layer):
    for cls in type(layer).__mro__:
        if cls.__name__ in _rules:
            return _rules[cls.__name__]
    return None


def _leaves(layers):
    """The layers that hold weights, those inside others in their place."""
    found = []
    for layer in layers:
        if not layer.weights:
            continue
        if _rule_for(layer) is None and layer.sublayers:
            found += _leaves(layer.sublayers)
        elif not any(layer is other for other in found):
            found.append(layer)
    return found


def _modules(state):
    """Group a state dict by module; each layer and direction of a recurrent module is one."""
    modules = {}
    for key, value in state.items():
        prefix, _, parameter = key.rpartition(".")
        if parameter == "num_batches_tracked":
            continue
        match = _recurrent.match(parameter)
        if match:
            prefix = f"{prefix}[layer {match[3]}{match[4] or ''}]"
            parameter = f"{match[1]}_{match[2]}"
        modules.setdefault(prefix, {})[parameter] = np.asarray(value)
    for prefix, module in list(modules.items()):
        if {"in_proj_weight", "q_proj_weight"} & set(module):  # attention: one with its output
            inner = f"{prefix}.out_proj" if prefix else "out_proj"
            module.update({f"out_proj.{k}": v for k, v in modules.pop(inner, {}).items()})
    return modules


def load_torch_state_dict(model, state, names=None):
    """Set a model's weights from a PyTorch state dict.

    Modules with weights are matched with layers with weights in order, or by ``names``.

    Parameters
    ----------
    model : Sequential or Model
        Built.
    state : dict of str to array_like
        ``{k: v.numpy() for k, v in module.state_dict().items()}``.
    names : dict of str to str, optional
        From names of layers to prefixes of keys, as ``{"dense": "net.0"}``, for all layers
        with weights. Layer k of a recurrent module is ``"rnn[layer k]"``, its backward
        direction ``"rnn[layer k_reverse]"``.

    Raises
    ------
    ValueError
        Modules and layers do not fit in number, kind or shape; nothing is changed then.

    Notes
    -----
    Kernels are transposed: Linear (out, in), Conv2d (out, in, kh, kw) and so on. Gates are
    reordered, LSTM's two biases are added, GRU's are kept apart (``reset_after=True``). PyTorch
    trains both biases of an LSTM, so that their sum moves twice as far a step as the one here.
    ``MultiheadAttention`` is a :class:`pyggml.layers.MultiHeadAttention` with ``key_dim =
    embed_dim // num_heads``.
    PyTorch's images are channels first; a Dense layer after Flatten has its rows in that order,
    as pyggml's has by default. Epsilons are arguments of the layers and not in the state dict:
    PyTorch's BatchNorm and LayerNorm have 1e-5.

    Examples
    --------
    >>> import numpy as np
    >>> import pyggml
    >>> model = pyggml.Sequential([pyggml.Input((3,)), pyggml.layers.Dense(2)])
    >>> pyggml.load_torch_state_dict(
    ...     model, {"0.weight": np.ones((2, 3)), "0.bias": np.zeros(2)})
    >>> model.predict(np.ones((1, 3))).tolist()
    [[3.0, 3.0]]
    """
    model.require_built()
    layers = _leaves(model.layers)
    modules = _modules(state)
    if names is None:
        if len(layers) != len(modules):
            raise ValueError(
                f"model {model.name!r} has {len(layers)} layers with weights "
                f"({', '.join(layer.name for layer in layers)}), the state dict {len(modules)} "
                f"modules ({', '.join(modules)}); names={{layer: module}} tells which is which")
        matches = list(zip(layers, modules, strict=True))
    else:
        wanted = [layer.name for layer in layers]
        if set(names) != set(wanted):
            raise ValueError(f"names must have the keys {wanted}, got {sorted(names)}")
        unknown = sorted(set(names.values()) - set(modules))
        if unknown:
            raise ValueError(f"the state dict has no modules {unknown}; it has {list(modules)}")
        matches = [(layer, names[layer.name]) for layer in layers]
    pairs = []
    for layer, prefix in matches:
        kind = type(layer).__name__
        rule = _rule_for(layer)
        if rule is None:
            raise ValueError(f"layer {layer.name!r} is a {kind}, which has no counterpart known "
                             f"here; known are {', '.join(sorted(_rules))}")
        try:
            found = rule(layer, modules[prefix])
            own = {v.name: v for v in layer.weights}
            if set(found) != set(own):
                raise ValueError(f"it gives {sorted(found)}, the layer has {sorted(own)}")
            pairs += [(own[name], own[name].check(array)) for name, array in found.items()]
        except (ValueError, TypeError) as error:
            raise ValueError(f"module {prefix!r} does not fit layer {layer.name!r} ({kind}): "
                             f"{error}") from error
    _assign(model, pairs)


def _assign(model, pairs):
    with model._predictor_of_program().lock:
        for variable, array in pairs:
            variable.assign(array)


# ---- Keras --------------------------------------------------------------------------------

def load_keras_weights(model, weights):
    """Set a model's weights from Keras'.

    Parameters
    ----------
    model : Sequential or Model
        Built.
    weights : list of array_like, or dict of str to array_like
        What Keras' ``model.get_weights()`` gives, in order; or
        ``{w.path: w.numpy() for w in keras_model.weights}``, by the last two parts of the path,
        ``"dense/kernel"``.

    Raises
    ------
    ValueError
        Numbers, names or shapes do not fit; nothing is changed then.

    Notes
    -----
    Shapes and orders of gates are Keras'. Keras' images are channels last by default: a Dense
    layer after Flatten has its rows in another order than after channels-first layers, so make
    the pyggml model with ``data_format="channels_last"`` too.

    Examples
    --------
    >>> import numpy as np
    >>> import pyggml
    >>> model = pyggml.Sequential([pyggml.Input((3,)), pyggml.layers.Dense(2)])
    >>> pyggml.load_keras_weights(model, [np.ones((3, 2)), np.zeros(2)])
    >>> model.predict(np.ones((1, 3))).tolist()
    [[3.0, 3.0]]
    """
    model.require_built()
    names = model.weight_names
    if isinstance(weights, dict):
        given = {"/".join(key.split(":")[0].split("/")[-2:]): value
                 for key, value in weights.items()}
        if len(given) != len(weights):
            raise ValueError("two keys end in the same layer/weight; pass a list in Keras' order")
        missing = [n for n in names.values() if n not in given]
        unknown = [n for n in given if n not in names.values()]
        if missing or unknown:
            raise ValueError(f"names do not fit: the model's {missing} are not given, {unknown} "
                             "are not in the model; pass a list in Keras' order to go by order")
        matches = [(v, name, given[name]) for v, name in names.items()]
    else:
        weights = list(weights)
        if len(weights) != len(names):
            raise ValueError(f"model {model.name!r} has {len(names)} weights, got {len(weights)}")
        matches = [(v, name, w) for (v, name), w in zip(names.items(), weights, strict=True)]
    wrong = [f"{name!r} has shape {v.shape}, got {np.shape(w)}"
             for v, name, w in matches if np.shape(w) != v.shape]
    if wrong:
        raise ValueError("shapes do not fit: " + "; ".join(wrong))
    _assign(model, [(v, v.check(w)) for v, _, w in matches])
