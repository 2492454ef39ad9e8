# Names of this folder that others may use; `__init__.py` imports one when it is first used.
from .method import cluster as cluster
from .plan import RADIUS_BINS as RADIUS_BINS
from .plan import Facts as Facts
from .plan import share_weights as share_weights
