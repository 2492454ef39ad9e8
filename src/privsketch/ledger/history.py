"""How much of a limit was spent by when."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from privsketch.ledger.accounting import Total
from privsketch.ledger.contents import DataSet, Entry


class Step(NamedTuple):
    """The share of a limit that was spent when an entry was made."""

    time: datetime
    entry: str
    used: float


def spending(data_set: DataSet, entries: Iterable[Entry]) -> list[Step]:
    """One step for each entry of a data set, in order, as they are charged now."""
    total, steps = Total(), []
    for entry in entries:
        if entry.data_set == data_set.name:
            total = total.plus(entry.charged)
            used = float(data_set.limit.used(total))
            steps.append(Step(datetime.fromisoformat(entry.time), entry.id, used))
    return steps


def span_text(begin: datetime, end: datetime) -> tuple[str, str]:
    """Both ends of a picture in words: days, or the time of one day."""
    if begin.date() == end.date():
        return f"{begin:%Y-%m-%d %H:%M}", f"{end:%H:%M} UTC"
    return begin.date().isoformat(), end.date().isoformat()
