from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class FaultyProblem:
    """Twice the input."""

    operation: ClassVar[str] = "faulty"

    batch: int
    size: int
    dtype: str = "FP32"

    @property
    def flops(self) -> int:
        # As if every element took a long sum, so that slow solvers are suspected.
        return 200 * self.batch * self.size
