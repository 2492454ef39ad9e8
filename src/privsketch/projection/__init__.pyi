# Names of this folder that others may use; `__init__.py` imports one when it is first used.
from .analysis import inertia as inertia
from .calibration import realised_gaussian as realised_gaussian
from .calibration import realised_laplace as realised_laplace
from .files import release_files as release_files
from .matrix import MATRIX_UNIT as MATRIX_UNIT
from .matrix import Change as Change
from .matrix import Matrix as Matrix
from .matrix import Protection as Protection
from .matrix import fresh_matrix as fresh_matrix
from .matrix import public_matrix as public_matrix
