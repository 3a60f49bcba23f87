"""EfficientNet-B0."""

from __future__ import annotations

from torch import Tensor, nn

# Expansion, channels, blocks, stride and filter size of each stage.
STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)


def convolution(
    channels: int, out: int, size: int, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, out, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(out),
    )


class Squeeze(nn.Module):
    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, squeezed, 1),
            nn.SiLU(),
            nn.Conv2d(squeezed, channels, 1),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        gate: Tensor = self.gate(x)
        return x * gate


class Block(nn.Module):
    def __init__(self, channels: int, out: int, expansion: int, stride: int, size: int) -> None:
        super().__init__()
        width = channels * expansion
        expand = [convolution(channels, width, 1), nn.SiLU()] if expansion > 1 else []
        self.body = nn.Sequential(
            *expand,
            convolution(width, width, size, stride, groups=width),
            nn.SiLU(),
            Squeeze(width, max(1, channels // 4)),
            convolution(width, out, 1),
        )
        self.adds = stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.body(x)
        return x + y if self.adds else y


def build() -> nn.Module:
    layers: list[nn.Module] = [convolution(3, 32, 3, 2), nn.SiLU()]
    channels = 32
    for expansion, out, blocks, stride, size in STAGES:
        for block in range(blocks):
            layers.append(Block(channels, out, expansion, 1 if block else stride, size))
            channels = out
    return nn.Sequential(
        *layers,
        convolution(channels, 1280, 1),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(1280, 1000),
    )
