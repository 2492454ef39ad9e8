"""Released rows: projected records with noise, and what can be learned from them.

Distances, clusters and neighbours are computed from released rows alone.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
