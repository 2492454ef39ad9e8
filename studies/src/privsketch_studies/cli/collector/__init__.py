"""Commands of the collector: to serve it, to run it, and to push and pull."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
