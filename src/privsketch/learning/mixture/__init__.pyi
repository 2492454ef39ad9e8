# Names of this folder that others may use; `__init__.py` imports one when it is first used.
from .gaussians import features as features
from .gaussians import merge_pairs as merge_pairs
