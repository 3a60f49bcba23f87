"""Convolution solvers: one file each, beside its kernel source."""
