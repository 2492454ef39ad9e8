# Names of this folder that others may use; `__init__.py` imports one when it is first used.
from .calibration import matched as matched
from .inference import LinearFit as LinearFit
from .inference import fit_linear as fit_linear
from .inference import partial_correlations as partial_correlations
from .posterior import EntryNoise as EntryNoise
from .posterior import Posterior as Posterior
from .posterior import posterior_of as posterior_of
from .problem import LinearProblem as LinearProblem
