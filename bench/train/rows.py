# SPDX-License-Identifier: Apache-2.0
"""The rows of the table: what Cadre is told, what PyTorch builds, and how many
operations a step has.

Operations are those of matrix products and convolutions: two for a multiply and
add, forward and both gradients, without the gradient of the samples; attention
is counted in full.
"""
from dataclasses import dataclass, field

CLASSES = 10
BYTES = 256


@dataclass(frozen=True)
class Row:
    title: str
    recipe: str
    batch: int
    kind: str            # of torch_step.py's model
    sizes: tuple = ()    # of a GPT: layers, width, heads, context
    keys: tuple = ()     # beside the batch
    # Times the speed of PyTorch's DDP with two ranks, in a precision.
    wanted: dict = field(default_factory=dict)
    convolves: bool = False


ROWS = {
    "mlp-128": Row("MLP [128]", "mlp-fashion", 128, "mlp", wanted={"f32": 3.0}),
    "mlp-1024": Row("MLP [1024]", "mlp-fashion", 1024, "mlp", wanted={"f32": 1.4}),
    "lenet": Row("LeNet-5 [128]", "lenet-fashion", 128, "lenet", wanted={"f32": 2.2},
                 convolves=True),
    "cnn": Row("CNN [128]", "cnn-fashion", 128, "cnn", wanted={"f32": 1.08},
               convolves=True),
    "resnet18-16": Row("ResNet-18/16 [64]", "resnet18-fashion", 64, "resnet18",
                       keys=("model.width=16",), wanted={"f32": 1.1}, convolves=True),
    "gpt-small": Row("GPT 4/128/128 [16]", "gpt-kjv-small", 16, "gpt",
                     sizes=(4, 128, 4, 128), wanted={"f32": 1.4, "bf16": 1.4}),
    "gpt": Row("GPT 6/384/256 [8]", "gpt-kjv", 8, "gpt",
               sizes=(6, 384, 6, 256), wanted={"f32": 1.2, "bf16": 1.3}),
}


def layers_operations(layers, batch):
    """layers: (places, inputs of one, outputs of one), the first first."""
    forward = [2 * batch * p * i * o for p, i, o in layers]
    return 3 * sum(forward) - forward[0]


def resnet_layers(width):
    layers = [(28 * 28, 9, width)]
    side, inputs = 28, width
    for stage in range(4):
        outputs = width << stage
        for block in range(2):
            stride = 2 if stage > 0 and block == 0 else 1
            side = (side + stride - 1) // stride
            layers.append((side * side, 9 * inputs, outputs))
            layers.append((side * side, 9 * outputs, outputs))
            if stride != 1 or inputs != outputs:
                layers.append((side * side, inputs, outputs))
            inputs = outputs
    return layers + [(1, inputs, CLASSES)]


def operations(row):
    """Of one step of the whole batch."""
    if row.kind == "gpt":
        layers, width, _, context = row.sizes
        tokens = row.batch * context
        products = 2 * tokens * (layers * 12 * width**2 + width * BYTES)
        attention = layers * 4 * row.batch * context**2 * width
        return 3 * (products + attention)
    return layers_operations({
        "mlp": [(1, 784, 512), (1, 512, 256), (1, 256, CLASSES)],
        "lenet": [(784, 25, 6), (100, 150, 16), (1, 400, 120), (1, 120, 84),
                  (1, 84, CLASSES)],
        "cnn": [(784, 9, 32), (784, 288, 32), (196, 288, 64), (196, 576, 64),
                (1, 3136, 128), (1, 128, CLASSES)],
        "resnet18": resnet_layers(16),
    }[row.kind], row.batch)
