"""Kernels for NVIDIA's graphics processors: LLVM writes PTX, the driver compiles and runs it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
