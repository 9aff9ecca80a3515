#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/nn/references.txt with PyTorch (Debian's python3-torch).

  tools/make_nn_references.py > tests/nn/references.txt
  tools/make_nn_references.py text > tests/nn/text_references.txt

Inputs come from a formula that the test computes as well, so only results are
stored. Layers are computed in f64 and rounded once; the five losses of a net
are those of an ordinary f32 training with AdamW.

An entry:  kind N I O tensor step count norm  and then count f32 bit patterns:
elements 0, step, 2 step ... of the tensor; norm is that of all its elements.
For images I and O are channels, and height, width, kernel, stride, padding,
dilation and groups follow them; for texts I and O are channels, and tokens,
heads and those of k and v follow. Of a net's entries I is the step, or the
parameter.
"""
import gzip
import math
import struct
import sys

import numpy as np
import torch
from torch.nn import functional as F

FASHION = "/usr/share/datasets/fashion-mnist"
X, WEIGHT, BIAS, DY, LABEL = 1, 2, 3, 4, 5  # tags of the formula


def words(tag, count):
    """32 well mixed bits for each element."""
    h = np.arange(count, dtype=np.uint32) * np.uint32(2654435761)
    h ^= np.uint32(tag * 0x9E3779B9 & 0xFFFFFFFF)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        h ^= h >> np.uint32(shift)
        h *= np.uint32(factor)
    return h ^ (h >> np.uint32(16))


def values(tag, shape, scale=1.0):
    """Uniform in [-scale, scale), in f32."""
    count = int(np.prod(shape))
    unit = (words(tag, count) >> np.uint32(8)).astype(np.float32)
    unit = (unit + np.float32(0.5)) * np.float32(2.0**-23) - np.float32(1.0)
    return torch.from_numpy((unit * np.float32(scale)).reshape(shape))


def labels(n, classes):
    return torch.from_numpy((words(LABEL, n) % np.uint32(classes)).astype(np.int64))


def bound(fan_in):
    return 1.0 / np.sqrt(float(fan_in))


def show(kind, n, i, o, tensor, result, most=5005, stride=257):
    flat = result.detach().flatten().double().numpy()
    step = 1 if len(flat) <= most else max(stride, len(flat) // most)
    kept = flat[::step].astype(np.float32)
    print(f"{kind} {n} {i} {o} {tensor} {step} {len(kept)} {np.linalg.norm(flat):.17g}")
    patterns = [f"{p:08x}" for p in kept.view(np.uint32)]
    for at in range(0, len(patterns), 8):
        print(" ".join(patterns[at : at + 8]))


def linear(n, i, o):
    x = values(X, (n, i)).double().requires_grad_()
    w = values(WEIGHT, (o, i), bound(i)).double().requires_grad_()
    b = values(BIAS, (o,), bound(i)).double().requires_grad_()
    y = F.linear(x, w, b)
    y.backward(values(DY, (n, o)).double())
    for tensor, result in (("y", y), ("dx", x.grad), ("dw", w.grad), ("db", b.grad)):
        show("linear", n, i, o, tensor, result)


def relu(n, i):
    x = values(X, (n, i)).double().requires_grad_()
    assert torch.all(x != 0)
    y = F.relu(x)
    y.backward(values(DY, (n, i)).double())
    show("relu", n, i, i, "y", y)
    show("relu", n, i, i, "dx", x.grad)


def softmax_cross_entropy(n, classes):
    z = values(X, (n, classes), 8.0).double().requires_grad_()
    losses = F.cross_entropy(z, labels(n, classes), reduction="none")
    losses.sum().backward()
    show("softmax_cross_entropy", n, classes, classes, "loss", losses)
    show("softmax_cross_entropy", n, classes, classes, "dz", z.grad)


def smoothed_cross_entropy(n, classes):
    """A tenth of each label is shared; every third sample has none."""
    z = values(X, (n, classes), 8.0).double().requires_grad_()
    y = labels(n, classes)
    y[::3] = -1
    losses = F.cross_entropy(z, y, reduction="none", label_smoothing=0.1, ignore_index=-1)
    losses.sum().backward()
    show("smoothed_cross_entropy", n, classes, classes, "loss", losses)
    show("smoothed_cross_entropy", n, classes, classes, "dz", z.grad, most=2000)


def fashion(n):
    with gzip.open(f"{FASHION}/train-images-idx3-ubyte.gz") as f:
        x = np.frombuffer(f.read(16 + n * 784), np.uint8, offset=16)
    with gzip.open(f"{FASHION}/train-labels-idx1-ubyte.gz") as f:
        y = np.frombuffer(f.read(8 + n), np.uint8, offset=8)
    x = (torch.from_numpy(x.copy()).float() / 255 - 0.2860) / 0.3530
    return x.reshape(n, 784), torch.from_numpy(y.astype("int64"))


def show_image(kind, x, y, window, tensor, result):
    (n, i, h, w), o = x.shape, y.shape[1]
    shape = " ".join(str(s) for s in (o, h, w) + window)
    show(kind, n, i, shape, tensor, result, most=120, stride=7)


def conv2d(n, i, h, w, o, kernel, stride, padding, dilation=1, groups=1):
    fan_in = i // groups * kernel * kernel
    x = values(X, (n, i, h, w)).double().requires_grad_()
    weight = values(WEIGHT, (o, i // groups, kernel, kernel), bound(fan_in)).double().requires_grad_()
    b = values(BIAS, (o,), bound(fan_in)).double().requires_grad_()
    y = F.conv2d(x, weight, b, stride, padding, dilation, groups)
    y.backward(values(DY, tuple(y.shape)).double())
    for tensor, result in (("y", y), ("dx", x.grad), ("dw", weight.grad), ("db", b.grad)):
        show_image("conv2d", x, y, (kernel, stride, padding, dilation, groups), tensor, result)


def pool2d(kind, n, c, h, w, kernel, stride, padding):
    """Quarters only, so that a window often has its highest value twice."""
    x = ((values(X, (n, c, h, w)) * 4).floor() / 4).double().requires_grad_()
    pool = F.max_pool2d if kind == "maxpool2d" else F.avg_pool2d
    y = pool(x, kernel, stride, padding)
    y.backward(values(DY, tuple(y.shape)).double())
    for tensor, result in (("y", y), ("dx", x.grad)):
        show_image(kind, x, y, (kernel, stride, padding, 0, 0), tensor, result)


NO_WINDOW = (0, 0, 0, 0, 0)


def global_avgpool2d(n, c, h, w):
    x = ((values(X, (n, c, h, w)) * 4).floor() / 4).double().requires_grad_()
    y = F.adaptive_avg_pool2d(x, 1)
    y.backward(values(DY, tuple(y.shape)).double())
    for tensor, result in (("y", y), ("dx", x.grad)):
        show_image("global_avgpool2d", x, y, NO_WINDOW, tensor, result)


def batch_norm2d(n, c, h, w):
    """mean and var are what a pass gives to the running ones, times n."""
    x = values(X, (n, c, h, w)).double().requires_grad_()
    weight = values(WEIGHT, (c,)).double().requires_grad_()
    b = values(BIAS, (c,)).double().requires_grad_()
    y = F.batch_norm(x, None, None, weight, b, training=True)
    y.backward(values(DY, tuple(y.shape)).double())
    mean, var = x.mean((0, 2, 3)) * n, x.var((0, 2, 3)) * n
    for tensor, result in (("y", y), ("dx", x.grad), ("dw", weight.grad), ("db", b.grad),
                           ("mean", mean), ("var", var)):
        show_image("batch_norm2d", x, y, NO_WINDOW, tensor, result)


def local_response_norm(n, c, h, w):
    """Large values, so that the norm is far from constant."""
    x = values(X, (n, c, h, w), 200.0).double().requires_grad_()
    y = F.local_response_norm(x, 5, alpha=5e-4, beta=0.75, k=2)
    y.backward(values(DY, tuple(y.shape)).double())
    for tensor, result in (("y", y), ("dx", x.grad)):
        show_image("local_response_norm", x, y, NO_WINDOW, tensor, result)


def mlp_net():
    return torch.nn.Sequential(
        torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256),
        torch.nn.ReLU(), torch.nn.Linear(256, 10),
    )


def cnn_net():
    nn = torch.nn
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(3136, 128), nn.ReLU(), nn.Linear(128, 10),
    )


def lenet_net():
    nn = torch.nn
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
        nn.Linear(84, 10),
    )


class Residual(torch.nn.Module):
    """Parameters in the order in which they are used, as cadre lists them."""

    def __init__(self, cin, cout, stride):
        super().__init__()
        nn = torch.nn
        self.c1, self.b1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout)
        self.c2, self.b2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False), nn.BatchNorm2d(cout)
        self.skip = nn.Identity()
        if stride != 1 or cin != cout:
            self.skip = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        y = self.b2(self.c2(F.relu(self.b1(self.c1(x)))))
        return F.relu(y + self.skip(x))


def resnet18_net(w=16):
    nn = torch.nn
    layers = [nn.Unflatten(1, (1, 28, 28)), nn.Conv2d(1, w, 3, 1, 1, bias=False),
              nn.BatchNorm2d(w), nn.ReLU()]
    cin = w
    for stage, cout in enumerate((w, 2 * w, 4 * w, 8 * w)):
        layers += [Residual(cin, cout, 1 if stage == 0 else 2), Residual(cout, cout, 1)]
        cin = cout
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin, 10))


class Bottleneck(torch.nn.Module):
    def __init__(self, cin, w, stride):
        super().__init__()
        nn = torch.nn
        self.c1, self.b1 = nn.Conv2d(cin, w, 1, bias=False), nn.BatchNorm2d(w)
        self.c2, self.b2 = nn.Conv2d(w, w, 3, stride, 1, bias=False), nn.BatchNorm2d(w)
        self.c3, self.b3 = nn.Conv2d(w, 4 * w, 1, bias=False), nn.BatchNorm2d(4 * w)
        self.skip = nn.Identity()
        if stride != 1 or cin != 4 * w:
            self.skip = nn.Sequential(nn.Conv2d(cin, 4 * w, 1, stride, bias=False), nn.BatchNorm2d(4 * w))

    def forward(self, x):
        y = F.relu(self.b2(self.c2(F.relu(self.b1(self.c1(x))))))
        return F.relu(self.b3(self.c3(y)) + self.skip(x))


def resnet50_net(w):
    nn = torch.nn
    layers = [nn.Conv2d(3, w, 7, 2, 3, bias=False), nn.BatchNorm2d(w), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    cin = w
    for stage, depth in enumerate((3, 4, 6, 3)):
        for i in range(depth):
            layers.append(Bottleneck(cin, w << stage, 2 if stage and not i else 1))
            cin = 4 * (w << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin, 10))


def alexnet_net(w):
    nn = torch.nn

    def norm():
        return nn.LocalResponseNorm(5, alpha=5e-4, beta=0.75, k=2)

    narrow, wide = w * 8 // 3, w * 4
    return nn.Sequential(
        nn.Conv2d(3, w, 11, 4, 2), nn.ReLU(), norm(), nn.MaxPool2d(3, 2),
        nn.Conv2d(w, narrow, 5, padding=2, groups=2), nn.ReLU(), norm(), nn.MaxPool2d(3, 2),
        nn.Conv2d(narrow, wide, 3, padding=1), nn.ReLU(),
        nn.Conv2d(wide, wide, 3, padding=1, groups=2), nn.ReLU(),
        nn.Conv2d(wide, narrow, 3, padding=1, groups=2), nn.ReLU(), nn.MaxPool2d(3, 2),
        nn.Flatten(), nn.LazyLinear(16 * narrow), nn.ReLU(),
        nn.Linear(16 * narrow, 16 * narrow), nn.ReLU(), nn.Linear(16 * narrow, 10),
    )


def vgg16_net(w):
    nn = torch.nn
    layers, cin = [], 3
    for depth, times in ((2, 1), (2, 2), (3, 4), (3, 8), (3, 8)):
        for _ in range(depth):
            layers += [nn.Conv2d(cin, w * times, 3, padding=1), nn.ReLU()]
            cin = w * times
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(
        *layers, nn.Flatten(), nn.LazyLinear(64 * w), nn.ReLU(),
        nn.Linear(64 * w, 64 * w), nn.ReLU(), nn.Linear(64 * w, 10),
    )


def numbered(net):
    """Parameters with cadre's numbers, which count a batch norm's two buffers."""
    index = 0
    for module in net.modules():
        for p in module.parameters(recurse=False):
            yield index, p, isinstance(module, torch.nn.BatchNorm2d) and p is module.weight
            index += 1
        index += 2 * isinstance(module, torch.nn.BatchNorm2d)


def fill(net, gain=1.0):
    """The formula's values for all parameters, a tag for each."""
    fan_in = 1
    for index, p, is_scale in numbered(net):
        fan_in = p[0].numel() if p.dim() > 1 else fan_in
        p.data = values(16 + index, tuple(p.shape), gain * bound(fan_in)) + float(is_scale)


def first_gradients(kind, net, batch, first=0):
    """In f64, from the weights and the batch that training starts with.

    first: leaves out parameters before it, since f32 does not have them to 1e-5
    (PyTorch's own of a ResNet's first convolution is off by 2.5e-5)."""
    x, y = fashion(batch)
    fill(net)
    net.double()
    F.cross_entropy(net(x.double()), y, reduction="sum").backward()
    for index, p, _ in numbered(net):
        if index < first:
            continue
        show(kind, batch, index, 0, "grad", p.grad, most=40, stride=7)
    net.float()


def pictures(side, step=0):
    return values(X + 256 * step, (4, 3, side, side)), labels(4, 10)


def predicted_losses(kind, net, side):
    """Of each picture, in f64, without dropout."""
    x, y = pictures(side)
    net(x)  # tells lazy layers their size
    fill(net, 2.0)
    show(kind, 4, 0, 0, "loss", F.cross_entropy(net.double()(x.double()), y, reduction="none"))


def losses_of_pictures(kind, net, side, steps, warmup=0):
    net(pictures(side)[0])  # tells lazy layers their size
    fill(net, 2.0)
    train(kind, net, 4, [pictures(side, s) for s in range(steps)], warmup)


def first_losses(kind, net, batch, steps, warmup=0):
    """Of the training set in the order of its file.

    warmup: the rate rises over so many steps.  A ResNet needs that: at the full
    rate PyTorch's own two back ends differ by 4e-3 in the fifth loss."""
    x, y = fashion(batch * steps)
    fill(net)
    train(kind, net, batch, zip(x.split(batch), y.split(batch)), warmup)


def train(kind, net, batch, batches, warmup):
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.01)
    for s, (x, y) in enumerate(batches):
        loss = F.cross_entropy(net(x), y)
        optimizer.param_groups[0]["lr"] = 1e-3 * ((s + 1) / warmup if warmup else 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = struct.unpack("<I", struct.pack("<f", loss.item()))[0]
        print(f"{kind} {batch} {s} 0 loss 1 1 {loss.item():.9g}\n{value:08x}")


def gelu(n, i):
    x = values(X, (n, i), 4.0).double().requires_grad_()
    y = F.gelu(x)
    y.backward(values(DY, (n, i)).double())
    show("gelu", n, i, i, "y", y, most=2000)
    show("gelu", n, i, i, "dx", x.grad, most=2000)


def layer_norm(n, i):
    x = values(X, (n, i)).double().requires_grad_()
    w = values(WEIGHT, (i,)).double().requires_grad_()
    b = values(BIAS, (i,)).double().requires_grad_()
    y = F.layer_norm(x, (i,), w, b)
    y.backward(values(DY, (n, i)).double())
    for tensor, result in (("y", y), ("dx", x.grad), ("dw", w.grad), ("db", b.grad)):
        show("layer_norm", n, i, i, tensor, result, most=2000)


def tokens_of(tag, shape, vocabulary):
    count = int(np.prod(shape))
    return torch.from_numpy((words(tag, count) % np.uint32(vocabulary)).astype(np.int64)).reshape(shape)


def embedding(n, tokens, vocabulary, c):
    x = tokens_of(LABEL, (n, tokens), vocabulary)
    w = values(WEIGHT, (vocabulary, c)).double().requires_grad_()
    y = F.embedding(x, w)
    y.backward(values(DY, tuple(y.shape)).double())
    show("embedding", n, vocabulary, f"{c} {tokens} 0 0", "y", y, most=2000)
    show("embedding", n, vocabulary, f"{c} {tokens} 0 0", "dw", w.grad, most=2000)


def positions(n, tokens, c):
    x = values(X, (n, tokens, c)).double().requires_grad_()
    w = values(WEIGHT, (tokens, c)).double().requires_grad_()
    y = x + w
    y.backward(values(DY, tuple(y.shape)).double())
    for tensor, result in (("y", y), ("dx", x.grad), ("dw", w.grad)):
        show("positions", n, c, f"{c} {tokens} 0 0", tensor, result, most=2000)


def rms_norm_of(x, w):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w


def rms_norm(n, i):
    x = values(X, (n, i)).double().requires_grad_()
    w = values(WEIGHT, (i,)).double().requires_grad_()
    y = rms_norm_of(x, w)
    y.backward(values(DY, (n, i)).double())
    for tensor, result in (("y", y), ("dx", x.grad), ("dw", w.grad)):
        show("rms_norm", n, i, i, tensor, result, most=2000)


def swiglu_of(x):
    a, b = x.chunk(2, -1)
    return F.silu(a) * b


def gate(kind, n, i, o):
    x = values(X, (n, i), 4.0).double().requires_grad_()
    y = F.silu(x) if kind == "silu" else swiglu_of(x)
    y.backward(values(DY, (n, o)).double())
    show(kind, n, i, o, "y", y, most=2000)
    show(kind, n, i, o, "dx", x.grad, most=2000)


def heads_of(x, heads, kv_heads):
    """q, k and v as (texts, heads, tokens, channels of a head)."""
    d = x.shape[2] // (heads + 2 * kv_heads)
    parts = x.split([heads * d, kv_heads * d, kv_heads * d], 2)
    return tuple(z.unflatten(2, (-1, d)).transpose(1, 2) for z in parts)


def turn(x):
    """Rotary positions: element i and the one half a head further are a pair."""
    t, half = x.shape[2], x.shape[3] // 2
    speed = 10000.0 ** (-torch.arange(half, dtype=torch.double) / half)
    angle = torch.arange(t, dtype=torch.double)[:, None] * speed
    c, s = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * c - b * s, b * c + a * s), -1)


def attend(q, k, v, causal, key_padding_mask=None):
    """As a plain program would: all scores, half of them masked away."""
    b, heads, t, d = q.shape
    share = heads // k.shape[1]
    k, v = (z.repeat_interleave(share, 1) for z in (k, v))
    s = (q @ k.transpose(-2, -1)) / math.sqrt(d)
    hidden = torch.zeros(b, 1, t, t, dtype=torch.bool)
    if causal:
        hidden = hidden | torch.ones(t, t).tril().logical_not()
    if key_padding_mask is not None:
        hidden = hidden | key_padding_mask[:, None, None, :]
    sees_none = hidden.all(-1, keepdim=True)
    s = s.masked_fill(hidden & sees_none.logical_not(), float("-inf"))
    p = s.softmax(-1).masked_fill(sees_none, 0)
    return (p @ v).transpose(1, 2).reshape(b, t, heads * d)


def padding(n, tokens):
    """A third of the tokens are none, and of several texts the whole last."""
    none = labels(n * tokens, 3).reshape(n, tokens) == 0
    if n > 1:
        none[-1] = True
    return none


def attention(kind, n, tokens, d, heads, kv_heads):
    i, o = d * (heads + 2 * kv_heads), d * heads
    x = values(X, (n, tokens, i), 2.0).double().requires_grad_()
    none = padding(n, tokens) if kind.startswith("padded") else None
    y = attend(*heads_of(x, heads, kv_heads), "causal" in kind, none)
    y.backward(values(DY, tuple(y.shape)).double())
    for tensor, result in (("y", y), ("dx", x.grad)):
        show(kind, n, i, f"{o} {tokens} {heads} {kv_heads}", tensor, result, most=2000)


def rotary(n, tokens, d, heads, kv_heads):
    i = d * (heads + 2 * kv_heads)
    x = values(X, (n, tokens, i)).double().requires_grad_()
    q, k, v = heads_of(x, heads, kv_heads)
    y = torch.cat([z.transpose(1, 2).flatten(2) for z in (turn(q), turn(k), v)], 2)
    y.backward(values(DY, tuple(y.shape)).double())
    for tensor, result in (("y", y), ("dx", x.grad)):
        show("rotary", n, i, f"{i} {tokens} {heads} {kv_heads}", tensor, result, most=2000)


class Block(torch.nn.Module):
    """Parameters in the order in which they are used, as cadre lists them."""

    def __init__(self, c, heads):
        super().__init__()
        nn = torch.nn
        self.heads = heads
        self.ln1, self.qkv, self.proj = nn.LayerNorm(c), nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.ln2, self.up, self.down = nn.LayerNorm(c), nn.Linear(c, 4 * c), nn.Linear(4 * c, c)

    def forward(self, x):
        heads = heads_of(self.qkv(self.ln1(x)), self.heads, self.heads)
        x = x + self.proj(attend(*heads, causal=True))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class Gpt(torch.nn.Module):
    def __init__(self, layers, c, heads, tokens):
        super().__init__()
        nn = torch.nn
        self.tok, self.pos = nn.Embedding(256, c), nn.Embedding(tokens, c)
        self.blocks = nn.Sequential(*(Block(c, heads) for _ in range(layers)))
        self.ln = nn.LayerNorm(c)

    def forward(self, x):
        h = self.ln(self.blocks(self.tok(x) + self.pos.weight))
        return F.linear(h, self.tok.weight)


class RmsNorm(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(c))

    def forward(self, x):
        return rms_norm_of(x, self.weight)


def plain(i, o):
    return torch.nn.Linear(i, o, bias=False)


class LlamaBlock(torch.nn.Module):
    def __init__(self, c, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads = heads, kv_heads
        inside = -(-8 * c // 3 // 32) * 32
        self.ln1 = RmsNorm(c)
        self.qkv = plain(c, c // heads * (heads + 2 * kv_heads))
        self.proj, self.ln2 = plain(c, c), RmsNorm(c)
        self.up, self.down = plain(c, 2 * inside), plain(inside, c)

    def forward(self, x):
        q, k, v = heads_of(self.qkv(self.ln1(x)), self.heads, self.kv_heads)
        x = x + self.proj(attend(turn(q), turn(k), v, causal=True))
        return x + self.down(swiglu_of(self.up(self.ln2(x))))


class Llama(torch.nn.Module):
    def __init__(self, layers, c, heads, kv_heads):
        super().__init__()
        self.tok = torch.nn.Embedding(256, c)
        self.blocks = torch.nn.Sequential(
            *(LlamaBlock(c, heads, kv_heads) for _ in range(layers)))
        self.ln, self.head = RmsNorm(c), plain(c, 256)

    def forward(self, x):
        return self.head(self.ln(self.blocks(self.tok(x))))


class BertBlock(torch.nn.Module):
    def __init__(self, c, heads):
        super().__init__()
        nn = torch.nn
        self.heads = heads
        self.qkv, self.proj, self.ln1 = nn.Linear(c, 3 * c), nn.Linear(c, c), nn.LayerNorm(c)
        self.up, self.down, self.ln2 = nn.Linear(c, 4 * c), nn.Linear(4 * c, c), nn.LayerNorm(c)

    def forward(self, x):
        heads = heads_of(self.qkv(x), self.heads, self.heads)
        x = self.ln1(x + self.proj(attend(*heads, causal=False)))
        return self.ln2(x + self.down(F.gelu(self.up(x))))


class Bert(torch.nn.Module):
    def __init__(self, layers, c, heads, tokens):
        super().__init__()
        nn = torch.nn
        self.tok, self.pos = nn.Embedding(257, c), nn.Embedding(tokens, c)
        self.ln = nn.LayerNorm(c)
        self.blocks = nn.Sequential(*(BertBlock(c, heads) for _ in range(layers)))
        self.head, self.ln_head = nn.Linear(c, c), nn.LayerNorm(c)

    def forward(self, x):
        h = self.blocks(self.ln(self.tok(x) + self.pos.weight))
        return F.linear(self.ln_head(F.gelu(self.head(h))), self.tok.weight)


def fill_text_net(net):
    for index, (name, p) in enumerate(net.named_parameters()):
        p.data = values(16 + index, tuple(p.shape), 0.1)
        if "ln" in name and "weight" in name:
            p.data += 1


def text_batch(tokens, batch, step):
    """Bytes below 64, and after each the one that follows it in its text."""
    text = tokens_of(X + 256 * step, (batch, tokens + 1), 64)
    return text[:, :-1], text[:, 1:]


def gap_batch(tokens, batch, step):
    """Of the texts above every seventh token is to be found."""
    x, _ = text_batch(tokens, batch, step)
    gap = torch.arange(batch * tokens).reshape(batch, tokens) % 7 == 0
    return x.masked_fill(gap, 256), x.masked_fill(gap.logical_not(), -1)


def text_net(kind, net, tokens, batch, steps, batch_of=text_batch):
    def loss_of(step, reduction):
        x, y = batch_of(tokens, batch, step)
        return F.cross_entropy(
            net(x).flatten(0, 1), y.flatten(), reduction=reduction, ignore_index=-1)

    fill_text_net(net)
    if kind.startswith("tiny"):
        net.double()
        loss_of(0, "sum").backward()
        for index, p in enumerate(net.parameters()):
            show(kind, batch, index, 0, "grad", p.grad, most=100, stride=7)
        net.float()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.01)
    for s in range(steps):
        loss = loss_of(s, "mean")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = struct.unpack("<I", struct.pack("<f", loss.item()))[0]
        print(f"{kind} {batch} {s} 0 loss 1 1 {loss.item():.9g}\n{value:08x}")


def text():
    for shape in ((1, 5), (7, 13), (33, 129)):
        gelu(*shape)
        layer_norm(*shape)
    embedding(3, 11, 256, 20)
    positions(3, 11, 20)
    for shape in ((1, 1, 4, 1, 1), (2, 7, 4, 3, 3), (2, 64, 16, 2, 2), (1, 130, 8, 5, 5),
                  (2, 67, 6, 6, 2)):
        attention("causal_attention", *shape)
    for shape in ((2, 7, 4, 3, 3), (1, 130, 5, 4, 1)):
        attention("attention", *shape)
    for shape in ((2, 7, 4, 3, 3), (2, 67, 6, 6, 2), (1, 130, 5, 4, 1)):
        attention("padded_causal_attention", *shape)
        attention("padded_attention", *shape)
    for shape in ((1, 5), (7, 13), (33, 129)):
        rms_norm(*shape)
        gate("silu", *shape, shape[1])
        gate("swiglu", shape[0], 2 * shape[1], shape[1])
    for shape in ((2, 7, 6, 3, 1), (1, 70, 18, 2, 2)):
        rotary(*shape)
    for shape in ((2, 2), (7, 13), (5, 1001)):
        smoothed_cross_entropy(*shape)
    text_net("tiny-gpt", Gpt(2, 24, 3, 70), 70, batch=3, steps=5)
    text_net("gpt-kjv-small", Gpt(4, 128, 4, 128), 128, batch=4, steps=5)
    text_net("gpt-kjv", Gpt(6, 384, 6, 32), 32, batch=4, steps=5)
    text_net("gpt2-small", Gpt(12, 48, 12, 64), 64, batch=4, steps=5)
    text_net("tiny-llama", Llama(2, 24, 6, 2), 70, batch=3, steps=5)
    text_net("llama-kjv-small", Llama(4, 128, 4, 2), 128, batch=4, steps=5)
    text_net("tiny-bert", Bert(2, 24, 3, 70), 70, batch=3, steps=5, batch_of=gap_batch)
    text_net("bert-kjv", Bert(4, 128, 4, 128), 128, batch=4, steps=5, batch_of=gap_batch)


def main():
    for shape in ((1, 1, 1), (7, 13, 11), (33, 17, 129), (64, 784, 512)):
        linear(*shape)
    for shape in ((1, 5), (7, 13), (33, 129)):
        relu(*shape)
    for shape in ((1, 2), (7, 13), (64, 10), (5, 1001)):
        softmax_cross_entropy(*shape)
    first_losses("mlp-fashion", mlp_net(), batch=128, steps=5)
    for shape in (
        (2, 1, 7, 9, 5, 3, 1, 1), (3, 3, 9, 8, 6, 5, 2, 2), (2, 6, 7, 7, 16, 3, 1, 0),
        (3, 16, 6, 5, 13, 1, 1, 0), (2, 13, 11, 10, 24, 3, 2, 1),
        (5, 24, 8, 8, 8, 4, 3, 1),
    ):
        conv2d(*shape)
    for kind in ("maxpool2d", "avgpool2d"):
        for shape in ((3, 5, 8, 6, 2, 2, 0), (2, 16, 9, 7, 3, 2, 1), (1, 17, 7, 7, 3, 3, 0)):
            pool2d(kind, *shape)
    for shape in (
        (2, 8, 9, 11, 12, 3, 1, 2, 2), (2, 16, 8, 7, 32, 3, 2, 1, 1, 2),
        (3, 12, 7, 6, 12, 3, 1, 1, 1, 12), (2, 10, 9, 12, 15, 3, 3, 2, 2, 5),
        (2, 3, 23, 19, 8, 7, 2, 3), (2, 3, 20, 31, 6, 11, 4, 2),
        (2, 48, 7, 5, 64, 3, 2, 1, 1, 16), (2, 3, 8, 6, 3, 3, 1, 1, 1, 3),
        (2, 2, 6, 9, 6, 5, 1, 2, 1, 2),
    ):
        conv2d(*shape)
    pool2d("maxpool2d", 2, 9, 11, 8, 3, 2, 0)
    for shape in ((1, 1, 1, 5), (3, 13, 7, 6), (2, 16, 1, 1)):
        global_avgpool2d(*shape)
        local_response_norm(*shape)
    for shape in ((3, 1, 2, 3), (3, 13, 7, 5), (5, 16, 9, 11), (9, 7, 1, 1)):
        batch_norm2d(*shape)
    for kind, make in (("cnn-fashion", cnn_net), ("lenet-fashion", lenet_net)):
        first_gradients(kind, make(), batch=16)
        first_losses(kind, make(), batch=16, steps=5)
    first_gradients("resnet18-fashion", resnet18_net(), batch=16, first=25)
    first_losses("resnet18-fashion", resnet18_net(), batch=16, steps=5, warmup=25)
    losses_of_pictures("resnet50-small", resnet50_net(8), side=64, steps=5, warmup=1000)
    predicted_losses("alexnet-predicts", alexnet_net(12), side=67)
    predicted_losses("vgg16-predicts", vgg16_net(4), side=32)
    losses_of_pictures("alexnet-small", alexnet_net(12), side=67, steps=5)
    losses_of_pictures("vgg16-small", vgg16_net(4), side=32, steps=5)


if __name__ == "__main__":
    text() if sys.argv[1:] == ["text"] else main()
