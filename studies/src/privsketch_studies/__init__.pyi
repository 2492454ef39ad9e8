# The public names of the package, each listed once; `__init__.py` imports them when first used.
from .errors import CollectorError as CollectorError
from .errors import StudyError as StudyError
from .sealing.ballots import Ballot as Ballot
from .sealing.cards import Card as Card
from .sealing.join import join as join
from .sealing.lists import CheckedBallots as CheckedBallots
from .sealing.lists import ClosedList as ClosedList
from .sealing.lists import check_ballots as check_ballots
from .sealing.seal import seal as seal
from .sealing.study import SealedStudy as SealedStudy
from .sealing.tally import Tally as Tally
from .sealing.tally import tally as tally

__version__: str
