"""Clustering methods for one holder: they read the records several times, on one budget."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
