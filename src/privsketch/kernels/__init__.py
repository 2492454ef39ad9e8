"""All machine code: loops that NumPy is too slow for, each beside its definition."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
