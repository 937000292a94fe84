"""PyTorch: eager with its fused Adam, and torch.compile."""

import numpy as np

from benchmarks import networks as nets
from benchmarks.contest import BATCHES, Contestant, training
from benchmarks.peers.ours import channels_first_rows

NAME = "PyTorch"
PACKAGES = ("torch",)


def configure(threads):
    import torch

    torch.set_flush_denormal(True)      # before there are threads, which inherit it
    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)


def contestants(workload, compiled):
    for c in (False, True) if compiled else (False,):
        name = "torch.compile" if c else "eager"
        if workload.kind == "step":
            yield name, lambda n=name, c=c: stepping(workload.network, n, c)
            if len(workload.network.input) == 3:
                yield (f"{name}, channels_last",
                       lambda n=name, c=c: stepping(workload.network, n, c, True))
        elif workload.kind == "predict":
            yield name, lambda n=name, c=c: predicting(workload, n, c)
        else:
            yield (f"{name}, DataLoader",
                   lambda n=name, c=c: fitting(workload, f"{n}, DataLoader", c, loader))
            yield (f"{name}, rows by index",
                   lambda n=name, c=c: fitting(workload, f"{n}, rows by index", c, indexed))


def build(network):
    """A module with the network's weights; it gives logits."""
    import torch
    from torch import nn

    def parameter(array, grad=True):
        return nn.Parameter(torch.from_numpy(np.array(array, order="C")), requires_grad=grad)

    shapes = network.shapes()
    parts = []
    for i, (layer, shape, w) in enumerate(zip(network.layers, shapes, network.weights(),
                                              strict=True)):
        match layer:
            case nets.Dense(units, activation):
                if i and isinstance(network.layers[i - 1], nets.Flatten):
                    w = (channels_first_rows(w[0], shapes[i - 1]), w[1])
                parts.append(linear(w[0], w[1], parameter))
                if activation == "relu":
                    parts.append(nn.ReLU())
            case nets.Conv(filters):
                part = nn.Conv2d(shape[2], filters, 3, padding=1)
                part.weight = parameter(w[0].transpose(3, 2, 0, 1))
                part.bias = parameter(w[1])
                parts += [part, nn.ReLU()]
            case nets.Pool():
                parts.append(nn.MaxPool2d(2))
            case nets.Flatten():
                parts.append(nn.Flatten())
            case nets.LSTM(units):
                rnn = nn.LSTM(shape[-1], units, batch_first=True)
                rnn.weight_ih_l0 = parameter(w[0].T)
                rnn.weight_hh_l0 = parameter(w[1].T)
                rnn.bias_ih_l0 = parameter(w[2])
                # The second bias would double the step of the first: it stays 0.
                rnn.bias_hh_l0 = parameter(np.zeros_like(w[2]), grad=False)
                parts.append(last_output(rnn))
            case nets.GRU(units):
                rnn = nn.GRU(shape[-1], units, batch_first=True)
                order = np.r_[units:2 * units, :units, 2 * units:3 * units]     # r, z, n
                rnn.weight_ih_l0 = parameter(w[0].T[order])
                rnn.weight_hh_l0 = parameter(w[1].T[order])
                rnn.bias_ih_l0 = parameter(w[2][0][order])
                rnn.bias_hh_l0 = parameter(w[2][1][order])
                parts.append(last_output(rnn))
            case nets.Block():
                parts.append(transformer_block(layer, shape, w, parameter))
            case nets.MeanOverTime():
                parts.append(mean_over_time())
    return nn.Sequential(*parts)


def linear(kernel, bias, parameter):
    from torch import nn

    part = nn.Linear(*kernel.shape)
    part.weight, part.bias = parameter(kernel.T), parameter(bias)
    return part


def last_output(rnn):
    from torch import nn

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = rnn

        def forward(self, x):
            return self.rnn(x)[0][:, -1]

    return Last()


def mean_over_time():
    from torch import nn

    class Mean(nn.Module):
        def forward(self, x):
            return x.mean(1)

    return Mean()


def transformer_block(layer, shape, w, parameter):
    """One product for queries, keys and values, and PyTorch's own attention."""
    import torch.nn.functional as F
    from torch import nn

    size, heads = shape[-1], layer.heads

    def norm(gamma, beta):
        part = nn.LayerNorm(size, eps=1e-3)
        part.weight, part.bias = parameter(gamma), parameter(beta)
        return part

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = linear(np.concatenate([w[i].reshape(size, size) for i in (0, 2, 4)], 1),
                              np.concatenate([w[i].ravel() for i in (1, 3, 5)]), parameter)
            self.out = linear(w[6].reshape(size, size), w[7], parameter)
            self.norm1, self.norm2 = norm(w[8], w[9]), norm(w[14], w[15])
            self.up, self.down = (linear(w[10], w[11], parameter),
                                  linear(w[12], w[13], parameter))

        def forward(self, x):
            n, steps, _ = x.shape
            qkv = self.qkv(x).view(n, steps, 3, heads, size // heads).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
            x = self.norm1(x + self.out(mixed.transpose(1, 2).reshape(n, steps, size)))
            return self.norm2(x + self.down(F.relu(self.up(x))))

    return Block()


def arrange(x, network, last=False):
    """Rows as a tensor; images are channels-first, in memory the other way where last is set."""
    import torch

    x = torch.from_numpy(x)
    if len(network.input) == 3:
        x = x.permute(0, 3, 1, 2).contiguous()
        if last:
            x = x.to(memory_format=torch.channels_last)
    return x


def maker(network, compiled, last=False):
    """Return a function that takes one training step on tensors."""
    import torch
    import torch.nn.functional as F

    module = build(network)
    if last:
        module = module.to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam([p for p in module.parameters() if p.requires_grad],
                                 network.rate, eps=1e-8, fused=True)
    criterion = F.mse_loss if network.loss == "mse" else F.cross_entropy

    def loss_of(x, y):
        return criterion(module(x), y)

    if compiled:
        loss_of = torch.compile(loss_of)

    def step(x, y):
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def stepping(network, name, compiled, last=False):
    import torch

    batches = [(arrange(x, network, last), torch.from_numpy(y))
               for x, y in network.batches(BATCHES)]
    form = f"{name}, channels_last" if last else name
    return training(NAME, form, maker(network, compiled, last), batches)


def predicting(workload, name, compiled):
    import torch

    module = torch.nn.Sequential(build(workload.network), torch.nn.Softmax(1)).eval()
    call = torch.compile(module) if compiled else module
    x, _ = workload.network.rows(workload.rows)

    def predict():
        with torch.inference_mode():
            return call(torch.from_numpy(x)).numpy()

    def run(count):
        for _ in range(count):
            predict()

    return Contestant(NAME, name, predict, run)


def loader(x, y, batch, shuffle):
    from torch.utils.data import DataLoader, TensorDataset

    return DataLoader(TensorDataset(x, y), batch_size=batch, shuffle=shuffle)


def indexed(x, y, batch, shuffle):
    import torch

    order = torch.randperm(len(x)) if shuffle else torch.arange(len(x))
    for rows in order.split(batch):
        yield x[rows], y[rows]


def fitting(workload, form, compiled, batches):
    import torch

    network = workload.network
    x, y = (torch.from_numpy(a) for a in network.rows(workload.rows))
    step = maker(network, compiled)

    def epoch(shuffle):
        total = 0.0
        for rows, targets in batches(x, y, network.batch, shuffle):
            total += step(rows, targets) * len(rows)
        return float(total) / len(x)

    def run(count):
        for _ in range(count):
            epoch(True)

    return Contestant(NAME, form, lambda: [epoch(False)], run)
