"""Exact integer noise, calibrated to sensitivity and budget, and the receipts of releases.

Every draw passes through `noise.mechanism`. Shares of one budget, and the account that pays with
them, are here too.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
