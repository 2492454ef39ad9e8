"""Partition trees of Balcan et al. (2017), with corrections."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
