from __future__ import annotations

from typing import Any

from foretune.kernels.problem import Tensor


def tensors(problem: Any) -> tuple[Tensor, ...]:
    shape, order = (problem.batch, problem.size), (0, 1)
    return (
        Tensor("x", shape, order, problem.dtype, False),
        Tensor("y", shape, order, problem.dtype, True),
    )
