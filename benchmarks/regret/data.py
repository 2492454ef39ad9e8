"""Which data sets are seen, and which are not.

SEEN were there while rules of "auto" were made (known.py). UNSEEN are those of real/first.py and
families/first.py: nothing of ours was run on them before the rules stood.
"""

from __future__ import annotations

from benchmarks.datasets import DataSet
from benchmarks.regret.families import first as first_families
from benchmarks.regret.known import KNOWN
from benchmarks.regret.real import first as first_tables
from benchmarks.regret.real.table import data_sets

SEEN: list[DataSet] = KNOWN
UNSEEN: list[DataSet] = [*data_sets(first_tables.TABLES), *first_families.FAMILIES]
