# Names of this folder that others may use; `__init__.py` imports one when it is first used.
from .mixture import METHODS as METHODS
from .pca import MAPS as MAPS
