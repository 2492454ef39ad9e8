"""Studies of several parties: sealed studies, of which only the total shows, and a collector.

In a sealed study each holder encrypts its noisy sums as a ballot, tellers publish tallies that say
nothing by themselves, and the tallies of all tellers add up to one sketch. A collector is a web
service that holds open and sealed studies. The public names are listed in `__init__.pyi`.
"""

from __future__ import annotations

import lazy_loader

__version__ = "0.2.0.dev0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
