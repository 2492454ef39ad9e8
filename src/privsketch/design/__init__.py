"""The public recipe that all holders share, its planners, and forecasts from public facts."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
