# Names of this folder that others may use; `__init__.py` imports one when it is first used.
from .gaussians import features as features
from .gaussians import merge_pairs as merge_pairs
from .prior import hierarchy as hierarchy
from .prior import make_prior as make_prior
from .whole import fit_whole as fit_whole
from .whole import make_coordinates as make_coordinates
