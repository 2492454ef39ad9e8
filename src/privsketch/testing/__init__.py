"""Tools for tests of private mechanisms: ours, and those that other packages register.

`replaced_noise` and `without_noise` change the noise inside a with block, `questions` and `replay`
show what a mechanism asks of it, `neighbouring_tables` are tables that differ by one record.
Releases that are made with these tools are marked INSECURE in their receipts.
"""

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
    "exact_answer",
    "moved",
    "neighbouring_tables",
    "questions",
    "replaced_noise",
    "replay",
    "without_noise",
]
