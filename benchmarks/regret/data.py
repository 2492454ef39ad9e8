"""Which data sets are seen, and which are not.

UNSEEN are those that nothing of ours was run on: no method, rule or constant was chosen by looking
at them, and their clusters, columns and bounds were fixed before any run. They are run when rules
stand. Whoever looks at what came out has seen them: they move to SEEN then, and the next round
needs new ones. So far:

    KNOWN    were there while rules of "auto" were made (known.py);
    first    38 that were unseen when those rules stood, and were run once; rules made since then
             have seen them (real/first.py, families/first.py);
    second   not run yet (real/second.py, families/second.py).

Rows of results are known by the name of their data set: a set that moves keeps them.
"""

from __future__ import annotations

from benchmarks.datasets import DataSet
from benchmarks.regret.families import first as first_families
from benchmarks.regret.families import second as second_families
from benchmarks.regret.known import KNOWN
from benchmarks.regret.real import first as first_tables
from benchmarks.regret.real import second as second_tables
from benchmarks.regret.real.table import data_sets

SEEN: list[DataSet] = [*KNOWN, *data_sets(first_tables.TABLES), *first_families.FAMILIES]
UNSEEN: list[DataSet] = [*data_sets(second_tables.TABLES), *second_families.FAMILIES]
