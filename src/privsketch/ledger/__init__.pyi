# Names of this folder that others may use; `__init__.py` imports one when it is first used.
from .accounting import Amount as Amount
from .accounting import Limit as Limit
from .accounting import Total as Total
from .accounting import epsilon_of_rho as epsilon_of_rho
from .contents import SpendingStep as SpendingStep
from .cost import Cost as Cost
from .cost import exp_above as exp_above
from .cost import fraction_text as fraction_text
from .entry import ProcessCosts as ProcessCosts
from .entry import named_data_set as named_data_set
from .entry import writing_to as writing_to
from .marks import MAX_MARKS as MAX_MARKS
from .marks import Marks as Marks
from .marks import compared as compared
from .marks import recognised as recognised
from .periods import Period as Period
from .periods import pace as pace
