"""Running kernels: one small file for each backend, their preludes, compiling and caching."""
