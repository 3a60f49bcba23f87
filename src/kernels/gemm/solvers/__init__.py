"""Solvers of the operation gemm; each module ends by making one, SOLVER."""
