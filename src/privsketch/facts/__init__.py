"""What is public about a study: domains, schemas, budgets and receipts.

People state domains, schemas and budgets; the library never derives them from records. A receipt
says what a release has spent.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
