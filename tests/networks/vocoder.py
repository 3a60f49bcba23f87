"""A vocoder: from mel spectrogram to samples, by 1-D transposed and dilated convolutions."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm


class Residual(nn.Module):
    def __init__(self, channels: int, size: int) -> None:
        super().__init__()
        self.pairs = nn.ModuleList(
            nn.Sequential(
                nn.LeakyReLU(0.1),
                weight_norm(
                    nn.Conv1d(
                        channels,
                        channels,
                        size,
                        dilation=dilation,
                        padding=dilation * (size - 1) // 2,
                    )
                ),
                nn.LeakyReLU(0.1),
                weight_norm(nn.Conv1d(channels, channels, size, padding=size // 2)),
            )
            for dilation in (1, 3, 5)
        )

    def forward(self, x: Tensor) -> Tensor:
        for pair in self.pairs:
            x = x + pair(x)
        return x


class Mean(nn.Module):
    def __init__(self, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([block(x) for block in self.blocks]).mean(0)


class Vocoder(nn.Module):
    def __init__(self, mels: int = 80, channels: int = 64) -> None:
        super().__init__()
        self.enter = weight_norm(nn.Conv1d(mels, channels, 7, padding=3))
        self.grow = nn.ModuleList()
        self.blocks = nn.ModuleList()
        for rate, size in ((8, 16), (8, 16), (2, 4), (2, 4)):
            out = channels // 2
            self.grow.append(
                weight_norm(nn.ConvTranspose1d(channels, out, size, rate, (size - rate) // 2))
            )
            self.blocks.append(Mean([Residual(out, filter_size) for filter_size in (3, 7)]))
            channels = out
        self.leave = weight_norm(nn.Conv1d(channels, 1, 7, padding=3))

    def forward(self, mel: Tensor) -> Tensor:
        x = self.enter(mel)
        for grow, block in zip(self.grow, self.blocks, strict=True):
            x = grow(nn.functional.leaky_relu(x, 0.1))
            x = block(x)
        y: Tensor = self.leave(nn.functional.leaky_relu(x)).tanh()
        return y


def build() -> nn.Module:
    return Vocoder()
