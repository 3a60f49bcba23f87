"""ResNet-50, and ResNets of other depths."""

from __future__ import annotations

from torch import Tensor, nn


def convolution(channels: int, out: int, size: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, out, size, stride, size // 2, bias=False), nn.BatchNorm2d(out)
    )


class Bottleneck(nn.Module):
    def __init__(self, channels: int, width: int, stride: int, strides_first: bool) -> None:
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            convolution(channels, width, 1, stride if strides_first else 1),
            nn.ReLU(inplace=True),
            convolution(width, width, 3, 1 if strides_first else stride),
            nn.ReLU(inplace=True),
            convolution(width, out, 1),
        )
        keeps = channels == out and stride == 1
        self.shortcut = nn.Identity() if keeps else convolution(channels, out, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.relu(self.body(x) + self.shortcut(x))


def build(
    depths: tuple[int, ...] = (3, 4, 6, 3), strides_first: bool = False, is_padded: bool = False
) -> nn.Module:
    """As published it strides in the first filter of a block; it may take padded images."""
    stages: list[nn.Module] = []
    channels = 64
    for stage, blocks in enumerate(depths):
        width = 64 << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            stages.append(Bottleneck(channels, width, stride, strides_first))
            channels = 4 * width
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 0 if is_padded else 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        *stages,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels, 1000),
    )
