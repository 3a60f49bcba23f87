"""Winograd convolution F(4x4, 3x3): 4 times fewer multiplications, some accuracy given up."""

from __future__ import annotations

from foretune.kernels.conv.winograd import WinogradConv


class Winograd4x4Conv(WinogradConv):
    """Tiles of 4 x 4 outputs."""

    id = "ConvWinograd4x4"
    out = 4
    # The transforms' constants up to 8 cost two digits.
    fp32_tolerance = 1e-4


SOLVER = Winograd4x4Conv()
