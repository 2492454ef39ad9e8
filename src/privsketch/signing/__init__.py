"""Signatures of files: key pairs, detached signatures, and trusted public keys.

A signature proves that the holder of a key signed these bytes. It does not prove that their content
is true.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
