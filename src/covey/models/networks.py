"""The papers' networks for images of any size; all but one end in log-probabilities.

All convolutions are padded, so that only pooling shrinks an image. Pooling stands before
ReLU: max and ReLU commute, and ReLU then meets a quarter of the values.

References:
    Privacy-aware clustered federated learning (IFCA-MIR), appendix A.1: `MnistCnn`,
    `FemnistCnn`, `Vgg`.
    Deniable unlearning, section 4: `ConvNet`, `LeNet5`, `ResNetMini`.
"""

import math
from itertools import pairwise
from typing import ClassVar, cast

from jaxtyping import Float
from torch import Tensor, nn

from covey.base.built_ins import component

ImageShape = tuple[int, int, int]
"""(channels, height, width)."""


class ImageNetwork(nn.Sequential):
    """A stack of layers over images.

    Attributes:
        smallest_side: the least height and width that leave a pixel after all pooling.
    """

    smallest_side: ClassVar[int]


def _halved(image_shape: ImageShape, times: int, channels: int) -> int:
    """Return the flat size of `channels` maps after pooling the image `times` times."""
    _, height, width = image_shape
    return channels * (height >> times) * (width >> times)


def _conv(inputs: int, maps: int, side: int = 3, *, pooled: bool = False) -> list[nn.Module]:
    """Return a padded convolution, pooled by two if that is said, and ReLU."""
    convolution = nn.Conv2d(inputs, maps, kernel_size=side, padding=side // 2)
    return [convolution, *([nn.MaxPool2d(2)] if pooled else []), nn.ReLU()]


def _classes(*widths: int) -> list[nn.Module]:
    """Return linear layers from width to width, ReLU between them, and log-probabilities."""
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return [*layers[:-1], nn.LogSoftmax(dim=1)]


@component("model", "mnist-cnn", default=True)
class MnistCnn(ImageNetwork):
    """Two padded 3x3 convolutions (32, 64), each pooled, and one Xavier linear layer."""

    smallest_side = 4

    def __init__(self, image_shape: ImageShape, num_classes: int) -> None:
        head = _classes(_halved(image_shape, times=2, channels=64), num_classes)
        nn.init.xavier_uniform_(cast("nn.Linear", head[1]).weight)
        super().__init__(
            *_conv(image_shape[0], 32, pooled=True), *_conv(32, 64, pooled=True), *head
        )


@component("model", "femnist-cnn")
class FemnistCnn(ImageNetwork):
    """Two padded 3x3 convolutions (32, 64), one pooling, and 128 hidden neurons."""

    smallest_side = 2

    def __init__(self, image_shape: ImageShape, num_classes: int) -> None:
        super().__init__(
            *_conv(image_shape[0], 32),
            *_conv(32, 64, pooled=True),
            *_classes(_halved(image_shape, times=1, channels=64), 128, num_classes),
        )


@component("model", "vgg")
class Vgg(ImageNetwork):
    """VGG-11 with BatchNorm and a 512-512 head.

    References:
        Simonyan and Zisserman, Very Deep Convolutional Networks, 2015, table 1, column A.
    """

    smallest_side = 32
    stages: ClassVar = ((64,), (128,), (256, 256), (512, 512), (512, 512))

    def __init__(self, image_shape: ImageShape, num_classes: int) -> None:
        layers: list[nn.Module] = []
        channels = image_shape[0]
        for stage in self.stages:
            for width in stage:
                layers += [
                    nn.Conv2d(channels, width, kernel_size=3, padding=1),
                    nn.BatchNorm2d(width),
                    nn.ReLU(),
                ]
                channels = width
            layers.insert(-1, nn.MaxPool2d(2))
        super().__init__(
            *layers,
            *_classes(_halved(image_shape, len(self.stages), channels), 512, 512, num_classes),
        )


@component("model", "convnet")
class ConvNet(ImageNetwork):
    """Two padded 3x3 convolutions (20, 10) without pooling, and 32 hidden neurons."""

    smallest_side = 1

    def __init__(self, image_shape: ImageShape, num_classes: int) -> None:
        super().__init__(
            *_conv(image_shape[0], 20),
            *_conv(20, 10),
            *_classes(_halved(image_shape, times=0, channels=10), 32, num_classes),
        )


@component("model", "lenet5")
class LeNet5(ImageNetwork):
    """Two padded 5x5 convolutions (6, 16), each pooled, and 120-84 hidden neurons.

    References:
        LeCun et al., Gradient-Based Learning Applied to Document Recognition, 1998;
        with ReLU and max-pooling, and padded so that small images fit.
    """

    smallest_side = 4

    def __init__(self, image_shape: ImageShape, num_classes: int) -> None:
        super().__init__(
            *_conv(image_shape[0], 6, side=5, pooled=True),
            *_conv(6, 16, side=5, pooled=True),
            *_classes(_halved(image_shape, times=2, channels=16), 120, 84, num_classes),
        )


class _ResidualBlock(nn.Module):
    """`pool(relu(conv(relu(conv(x))) + shortcut(x)))`: three learnable layers."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, width, kernel_size=3, padding=1)
        self.second = nn.Conv2d(width, width, kernel_size=3, padding=1)
        self.shortcut = nn.Conv2d(channels, width, kernel_size=1)

    def forward(
        self, images: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch maps half_height half_width"]:
        residual = self.second(self.first(images).relu())
        return nn.functional.max_pool2d(residual + self.shortcut(images), 2).relu()


@component("model", "resnet-mini")
class ResNetMini(ImageNetwork):
    """Two residual blocks (16, 32 maps) and a linear layer: seven learnable layers."""

    smallest_side = 4

    def __init__(self, image_shape: ImageShape, num_classes: int) -> None:
        super().__init__(
            _ResidualBlock(image_shape[0], 16),
            _ResidualBlock(16, 32),
            *_classes(_halved(image_shape, times=2, channels=32), num_classes),
        )


@component("model", "mlp")
class Mlp(nn.Sequential):
    """One hidden layer of 200 neurons, over inputs of any shape."""

    def __init__(self, input_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__(*_classes(math.prod(input_shape), 200, num_classes))


@component("model", "linear")
class Linear(nn.Sequential):
    """Softmax regression over inputs of any shape: few parameters, so little noise."""

    def __init__(self, input_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__(*_classes(math.prod(input_shape), num_classes))


@component("model", "linear-map")
class LinearMap(nn.Sequential):
    """One matrix without bias over inputs of any shape, `theta x`; its outputs are raw."""

    def __init__(self, input_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(math.prod(input_shape), num_classes, bias=False))
