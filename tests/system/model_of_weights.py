"""Rebuilds models of docs/models.md from the names, shapes and values of their weights."""

from collections import OrderedDict

from torch import nn


def cnn_of(weights, strides):
    """The `cnn`, without batch norm."""
    convolutions = sorted((int(name.split(".")[1]), tensor) for name, tensor in weights.items()
                          if name.startswith("features.") and name.endswith(".weight"))
    features = []
    for (_, weight), stride in zip(convolutions, strides):
        features += [nn.Conv2d(weight.shape[1], weight.shape[0], 3, stride=stride, padding=1),
                     nn.ReLU()]
    classes, width = weights["classifier.weight"].shape
    model = nn.Sequential(OrderedDict(features=nn.Sequential(*features),
                                      pool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten(),
                                      dropout=nn.Dropout(0.0),
                                      classifier=nn.Linear(width, classes)))
    return _with_values(model, weights)


def mlp_of(weights):
    """The `mlp`, without dropout. Its input is flat."""
    shapes = [tensor.shape for _, tensor in sorted((int(name.split(".")[0]), tensor)
                                                   for name, tensor in weights.items()
                                                   if name.endswith(".weight"))]
    layers = [nn.Linear(shapes[0][1], shapes[0][0])]
    for width, width_before in shapes[1:]:
        layers += [nn.ReLU(), nn.Linear(width_before, width)]
    return _with_values(nn.Sequential(*layers), weights)


def _with_values(model, weights):
    """Throws if a name or a shape differs."""
    model.to(next(iter(weights.values())).dtype).load_state_dict(weights)
    return model
