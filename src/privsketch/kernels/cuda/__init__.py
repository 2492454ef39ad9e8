"""Kernels for NVIDIA's graphics processors: LLVM writes PTX, the driver compiles and runs it."""
