"""Tools for tests of private mechanisms: ours, and those that other packages register.

`replaced_noise` changes the noise inside a with block. `questions` and `replay` show what a
mechanism asks of the noise, and `neighbouring_tables` yields tables that differ by one record.
`check_engine`, `check_feature_map`, `check_method` and `check_decoder` check parts of other
packages with these tools. `expected_failed_checks` names the checks of scikit-learn that our
estimators must fail. Receipts of releases that are made with these tools say INSECURE. Exact sums
of one design are a matter of `Design.without_noise`.
"""

from privsketch.testing.checks import check_decoder, check_engine, check_feature_map, check_method
from privsketch.testing.contract import expected_failed_checks
from privsketch.testing.tape import (
    Question,
    Replayed,
    Tape,
    exact_answer,
    moved,
    neighbouring_tables,
    questions,
    replaced_noise,
    replay,
)

__all__ = [
    "Question",
    "Replayed",
    "Tape",
    "check_decoder",
    "check_engine",
    "check_feature_map",
    "check_method",
    "exact_answer",
    "expected_failed_checks",
    "moved",
    "neighbouring_tables",
    "questions",
    "replaced_noise",
    "replay",
]
