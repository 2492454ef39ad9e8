# Names of this folder that others may use; `__init__.py` imports one when it is first used.
from .fits import cost_and_gradient as cost_and_gradient
