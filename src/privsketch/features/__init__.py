"""Feature maps from records to integers, and bounds on what one record can contribute.

Everything here is public: feature maps, their tables, random numbers that are the same on every
machine, and bounds on the contribution of one record to a sum.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
