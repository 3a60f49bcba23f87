"""Winograd convolution F(2x2, 3x3): 2.25 times fewer multiplications."""

from __future__ import annotations

from foretune.kernels.conv.winograd import WinogradConv


class Winograd2x2Conv(WinogradConv):
    """Tiles of 2 x 2 outputs."""

    id = "ConvWinograd2x2"
    out = 2


SOLVER = Winograd2x2Conv()
