"""The collector: a web service for studies, their members and their uploads.

It adds up the sketches of open studies, and stores the files of sealed studies, which it cannot
read. The modules of this folder have plain functions and all of the SQL; `web` and `pages` call
them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
