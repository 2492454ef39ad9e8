"""Which data sets are seen, and which are not.

UNSEEN are those that nothing of ours was run on: no method, rule or constant was chosen by looking
at them, and their clusters, columns and bounds were fixed before any run. They are run when rules
stand. Whoever looks at what came out has seen them: they move to ONCE_UNSEEN then, and the next
round needs new ones. So far:

    KNOWN          were there while rules of "auto" were made (known.py);
    ONCE_UNSEEN    38 that were unseen when those rules stood (first.py of real and families), and
                   31 of a second round, when rules had changed (second.py of both). They were run
                   then; rules made since have seen them;
    UNSEEN         30 of a third round (third.py of both), on which nothing of ours was run yet.

Rows of results are known by the name of their data set: a set that moves keeps them. Rounds keep
groups of their own in tables of results: their sets were made with different gaps in mind, and the
rules that first met them differ.
"""

from __future__ import annotations

from benchmarks.datasets import DataSet
from benchmarks.regret.families import first as first_families
from benchmarks.regret.families import second as second_families
from benchmarks.regret.families import third as third_families
from benchmarks.regret.known import KNOWN
from benchmarks.regret.real import first as first_tables
from benchmarks.regret.real import second as second_tables
from benchmarks.regret.real import third as third_tables
from benchmarks.regret.real.table import data_sets

FIRST_ROUND: list[DataSet] = [*data_sets(first_tables.TABLES), *first_families.FAMILIES]
SECOND_ROUND: list[DataSet] = [*data_sets(second_tables.TABLES), *second_families.FAMILIES]
ONCE_UNSEEN: list[DataSet] = [*FIRST_ROUND, *SECOND_ROUND]
SEEN: list[DataSet] = [*KNOWN, *ONCE_UNSEEN]
UNSEEN: list[DataSet] = [*data_sets(third_tables.TABLES), *third_families.FAMILIES]
GROUPS: dict[str, list[DataSet]] = {  # as tables of results have them
    "seen": KNOWN,
    "once unseen": FIRST_ROUND,
    "once unseen, second round": SECOND_ROUND,
    "unseen": UNSEEN,
}
