"""Tools for tests of private mechanisms: ours, and those that other packages register.

`replaced_noise` and `without_noise` change the noise inside a with block, `questions` and `replay`
show what a mechanism asks of it, `neighbouring_tables` are tables that differ by one record.
`check_engine`, `check_feature_map`, `check_method` and `check_decoder` put these together for parts
that other packages register.
Releases that are made with these tools are marked INSECURE in their receipts.
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
    without_noise,
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
    "without_noise",
]
