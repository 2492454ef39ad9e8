"""Records to a private sketch, sketches to their sum, and the engines that compute."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
