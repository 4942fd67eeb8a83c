"""The suite's models in PyTorch, with the sizes of `trireme bench step` (docs/models.md), and
random data for them."""

import torch
import torch.nn.functional as F
from torch import nn


def mlp(inputs, hidden, classes=10):
    layers = []
    for width_in, width_out in zip([inputs] + hidden[:-1], hidden):
        layers += [nn.Linear(width_in, width_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden[-1], classes))


def cnn(channels=(3, 32, 64, 64, 128, 128, 256), strides=(1, 2, 1, 2, 1, 2), classes=10):
    layers = []
    for channels_in, channels_out, stride in zip(channels, channels[1:], strides):
        layers += [nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False),
                   nn.BatchNorm2d(channels_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(channels[-1], classes))


class ResidualBlock(nn.Module):
    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(nn.Conv2d(channels_in, channels, 1, stride, bias=False),
                                          nn.BatchNorm2d(channels))

    def forward(self, x):
        inner = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(inner)) + self.shortcut(x), inplace=True)


def resnet18(classes=1000):
    stem = [nn.Conv2d(3, 64, 7, 2, padding=3, bias=False), nn.BatchNorm2d(64),
            nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)]
    widths = [64, 64, 128, 256, 512]
    blocks = []
    for stage, (channels_in, channels) in enumerate(zip(widths, widths[1:])):
        blocks += [ResidualBlock(channels_in, channels, 1 if stage == 0 else 2),
                   ResidualBlock(channels, channels, 1)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(512, classes))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.attention_out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                 nn.Linear(4 * width, width))

    def forward(self, x):
        batch, tokens, width = x.shape
        qkv = self.qkv(self.attention_norm(x))
        q, k, v = qkv.view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attention_out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.mlp(self.mlp_norm(x))


class Embedding(nn.Module):
    """The first block of a Gpt that is cut."""

    def __init__(self, model):
        super().__init__()
        self.tokens, self.positions = model.token_embedding, model.position_embedding

    def forward(self, tokens):
        return self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]


class Head(nn.Module):
    """The last block of a Gpt that is cut."""

    def __init__(self, model):
        super().__init__()
        self.norm, self.head = model.final_norm, model.head

    def forward(self, x):
        return self.head(self.norm(x)).flatten(0, 1)


class Gpt(nn.Module):
    def __init__(self, layers=6, width=256, heads=8, vocabulary=8192, context=128):
        super().__init__()
        self.token_embedding = nn.Embedding(vocabulary, width)
        self.position_embedding = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.final_norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.token_embedding(tokens) + self.position_embedding.weight[: tokens.shape[1]]
        return self.head(self.final_norm(self.blocks(x))).flatten(0, 1)


def parts_of(model, count, cut=None):
    """Returns the model as `count` modules that follow each other, or as its blocks if `count` is
    None. `cut`: the blocks of each, or None for equally many; a block is a layer with its
    activation, or a transformer's or residual network's block."""
    if any(isinstance(child, ResidualBlock) for child in model.children()):
        layers = list(model)
        blocks = [nn.Sequential(*layers[:4]), *layers[4:-3], nn.Sequential(*layers[-3:])]
    elif isinstance(model, Gpt):
        blocks = [Embedding(model), *model.blocks, Head(model)]
    else:
        layers = list(model)
        starts = [i for i, layer in enumerate(layers) if isinstance(layer, nn.Linear)]
        blocks = [nn.Sequential(*layers[a:b]) for a, b in zip(starts, starts[1:] + [len(layers)])]
    count = count or len(blocks)
    if cut is None:
        ends = [round(len(blocks) * (part + 1) / count) for part in range(count)]
        cut = [end - start for start, end in zip([0] + ends, ends)]
    parts, first = [], 0
    for size in cut:
        parts.append(nn.Sequential(*blocks[first:first + size]))
        first += size
    return parts


def images(*shape, classes=10):
    return torch.randn(*shape), torch.randint(classes, (shape[0],))


def texts(size, vocabulary=8192):
    return (torch.randint(vocabulary, (size, 128)), torch.randint(vocabulary, (size * 128,)))


# name -> (the model, the batch and the targets of one rank, for a number of samples)
MODELS = {
    "tiny": (lambda: mlp(64, [64] * 64), lambda size=32: images(size, 64)),
    "mlp": (lambda: mlp(784, [1024] * 3), lambda size=128: images(size, 784)),
    "mlpbig": (lambda: mlp(2048, [4096] * 2), lambda size=64: images(size, 2048)),
    "chain": (lambda: mlp(1024, [1024] * 8), lambda size=128: images(size, 1024)),
    "cnn": (cnn, lambda size=32: images(size, 3, 32, 32)),
    "gpt": (Gpt, lambda size=8: texts(size)),
    "gptdeep": (lambda: Gpt(layers=16, vocabulary=512), lambda size=8: texts(size, 512)),
    "resnet18": (resnet18, lambda size=8: images(size, 3, 224, 224, classes=1000)),
}
