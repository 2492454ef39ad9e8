# Names of this folder that others may use; `__init__.py` imports one when it is first used.
from .demo_steps import SCHEMA as SCHEMA
from .demo_steps import kept_records as kept_records
from .demo_steps import write_tables as write_tables
from .fit.cluster import methods_of as methods_of
from .shell.answer import plain as plain
from .shell.chart import chart as chart
from .shell.failure import EXIT_CODES as EXIT_CODES
from .shell.failure import can_spend as can_spend
from .shell.signing import given_passphrase as given_passphrase
from .shell.spending import Spending as Spending
from .shell.stopping import Stop as Stop
from .shell.stopping import stoppable as stoppable
