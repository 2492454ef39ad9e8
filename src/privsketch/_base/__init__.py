"""Shared foundations: errors, file formats, plugins, threads, elementary functions, array types.

Nothing here depends on records, noise or models.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
