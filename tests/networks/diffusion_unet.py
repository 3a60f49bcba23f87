"""A U-Net that removes noise from latent images, with its time step and its prompt."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

TIME = 128


class Residual(nn.Module):
    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.GroupNorm(8, channels), nn.SiLU(), nn.Conv2d(channels, out, 3, padding=1)
        )
        self.time = nn.Linear(TIME, out)
        self.second = nn.Sequential(
            nn.GroupNorm(8, out), nn.SiLU(), nn.Conv2d(out, out, 3, padding=1)
        )
        self.shortcut = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y: Tensor = self.first(x) + self.time(time)[:, :, None, None]
        shortcut: Tensor = self.shortcut(x)
        changed: Tensor = self.second(y)
        return changed + shortcut


class Attention(nn.Module):
    def __init__(self, channels: int, prompt: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(8, channels)
        self.enter = nn.Conv2d(channels, channels, 1)
        self.to_self = nn.MultiheadAttention(channels, 4, batch_first=True)
        self.to_prompt = nn.MultiheadAttention(
            channels, 4, kdim=prompt, vdim=prompt, batch_first=True
        )
        self.leave = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor, prompt: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        y = self.enter(self.norm(x)).flatten(2).transpose(1, 2)
        y = y + self.to_self(y, y, y, need_weights=False)[0]
        y = y + self.to_prompt(y, prompt, prompt, need_weights=False)[0]
        z: Tensor = self.leave(y.transpose(1, 2).reshape(batch, channels, height, width))
        return x + z


class UNet(nn.Module):
    def __init__(self, widths: tuple[int, ...] = (32, 64, 128), prompt: int = 48) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(TIME, TIME), nn.SiLU(), nn.Linear(TIME, TIME))
        self.enter = nn.Conv2d(4, widths[0], 3, padding=1)
        self.down = nn.ModuleList()
        self.shrink = nn.ModuleList()
        channels = widths[0]
        for width in widths:
            self.down.append(Residual(channels, width))
            self.shrink.append(nn.Conv2d(width, width, 3, stride=2, padding=1))
            channels = width
        self.middle = Residual(channels, channels)
        self.attention = Attention(channels, prompt)
        self.grow = nn.ModuleList()
        self.up = nn.ModuleList()
        for width in reversed(widths):
            self.grow.append(nn.Conv2d(channels, width, 3, padding=1))
            self.up.append(Residual(2 * width, width))
            channels = width
        self.leave = nn.Sequential(
            nn.GroupNorm(8, channels), nn.SiLU(), nn.Conv2d(channels, 4, 3, padding=1)
        )

    def forward(self, sample: Tensor, step: Tensor, prompt: Tensor) -> Tensor:
        rates = torch.exp(torch.arange(TIME // 2, device=step.device) * (-math.log(1e4) * 2 / TIME))
        angles = step[:, None] * rates
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1).to(sample.dtype))
        x = self.enter(sample)
        kept = []
        for down, shrink in zip(self.down, self.shrink, strict=True):
            x = down(x, time)
            kept.append(x)
            x = shrink(x)
        x = self.attention(self.middle(x, time), prompt)
        for grow, up in zip(self.grow, self.up, strict=True):
            other = kept.pop()
            x = grow(nn.functional.interpolate(x, size=other.shape[2:]))
            x = up(torch.cat([x, other], 1), time)
        y: Tensor = self.leave(x)
        return y


def build() -> nn.Module:
    return UNet()
