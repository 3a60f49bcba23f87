"""Which shapes a model may learn from, is calibrated on, and is tested on."""

from __future__ import annotations

from hashlib import blake2b

from foretune.kernels.conv.problem import ConvProblem

_SALT = b"foretune shapes 1"
#: Upper ends of the parts within the unit interval.
TRAIN_END, CALIBRATE_END = 0.85, 0.94


def shape_position(problem: ConvProblem) -> float:
    """Place of a problem's shape in [0, 1), the same for all its batches, types and directions.

    A 3-D convolution of depth 1 is the same shape as its 2-D twin.

    Examples
    --------
    >>> flat = ConvProblem("F", 8, 64, (56, 56), 64, (3, 3), padding=(1, 1))
    >>> deep = ConvProblem("W", 1, 64, (1, 56, 56), 64, (1, 3, 3), padding=(0, 1, 1), dtype="FP16")
    >>> shape_position(flat) == shape_position(deep)
    True
    """
    p = problem
    one, zero = ((1,), (0,)) if len(p.in_size) == 2 else ((), ())
    numbers = (
        p.in_channels,
        *one,
        *p.in_size,
        p.out_channels,
        *one,
        *p.filter_size,
        *zero,
        *p.padding,
        *one,
        *p.stride,
        *one,
        *p.dilation,
        p.groups,
    )
    text = ",".join(map(str, numbers)).encode()
    return int.from_bytes(blake2b(_SALT + text, digest_size=6).digest(), "big") / 2**48


def part_of(position: float) -> str:
    """Part that a position belongs to: "train", "calibrate" or "test".

    Examples
    --------
    >>> part_of(0.5), part_of(0.9), part_of(0.99)
    ('train', 'calibrate', 'test')
    """
    if position < TRAIN_END:
        return "train"
    return "calibrate" if position < CALIBRATE_END else "test"


def fold_of(position: float, folds: int) -> int:
    """Fold of a training shape, 0 to `folds` - 1.

    Examples
    --------
    >>> fold_of(0.0, 4), fold_of(0.84, 4)
    (0, 3)
    """
    return min(int(position / TRAIN_END * folds), folds - 1)
