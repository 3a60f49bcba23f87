"""Leaving out, with the reason, tests that compute on the processor where nothing does."""

from __future__ import annotations

import pytest

from foretune.kernels.runtime import opencl

needs_processor = pytest.mark.skipif(
    not opencl.count_processors(),
    reason=f"no processor to compute on: {opencl.why_absent() or 'OpenCL knows GPUs alone'}",
)
