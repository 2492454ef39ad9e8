"""Tools for tests of private mechanisms: ours, and those that other packages register.

`replaced_noise` changes the noise inside a with block. `questions` and `replay` show what a
mechanism asks of the noise, and `neighbouring_tables` yields tables that differ by one record.
`check_engine`, `check_feature_map`, `check_method` and `check_decoder` check parts of other
packages with these tools. Receipts of releases that are made with them say INSECURE. Exact sums
of one design are a matter of `Design.without_noise`.
"""

from privsketch.testing.checks import check_decoder, check_engine, check_feature_map, check_method
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
    "moved",
    "neighbouring_tables",
    "questions",
    "replaced_noise",
    "replay",
]
