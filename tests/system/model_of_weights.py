"""Rebuilds the `cnn` of docs/models.md, without batch norm, from the names and shapes of its
weights."""

from collections import OrderedDict

from torch import nn


def model_of(weights, strides):
    convolutions = sorted((int(name.split(".")[1]), tensor) for name, tensor in weights.items()
                          if name.startswith("features.") and name.endswith(".weight"))
    features = []
    for (_, weight), stride in zip(convolutions, strides):
        features += [nn.Conv2d(weight.shape[1], weight.shape[0], 3, stride=stride, padding=1),
                     nn.ReLU()]
    classes, width = weights["classifier.weight"].shape
    return nn.Sequential(OrderedDict(features=nn.Sequential(*features),
                                     pool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten(),
                                     dropout=nn.Dropout(0.0),
                                     classifier=nn.Linear(width, classes)))
