"""The ledger: what all releases of a holder cost together, with limits, in one file.

All arithmetic is exact: costs are fractions. A reserved cost is spent.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
