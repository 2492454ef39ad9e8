"""Engines: where the exact sums of one holder are computed. All give the same integers.

An engine is named (`engine="pool"`), or is an object with its options
(`engine=privsketch.engines.Pool(n_workers=4)`). The names here are listed in `__init__.pyi`; a
class is imported when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
