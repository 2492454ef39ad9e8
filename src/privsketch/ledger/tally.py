"""Fits of one process that spend again on the same records: said once, with the total.

A search over parameters, a clone or a pipeline fits as often as it likes, and each fit is a
release. Where no ledger is kept nobody adds up; so estimators let the process know which records
they released, by marks under a key that it draws for itself and forgets with everything else.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from threading import Lock

from privsketch.facts.budget import cost_text, exact_sum
from privsketch.facts.receipt import Receipt
from privsketch.ledger.marks import Marks, compared

KEY = secrets.token_bytes(32)  # of this process
_LEAST = 0.2  # share of common records from which on costs are said to add up
_MOST = 10_000  # fits that are remembered


@dataclass
class _Fit:
    marks: Marks
    receipt: Receipt


class Tally:
    """What estimators have released so far; safe for threads."""

    def __init__(self) -> None:
        self._fits: list[_Fit] = []
        self._told: set[tuple[bytes, str]] = set()
        self._lock = Lock()

    def count(self, marks: Marks, receipt: Receipt) -> list[str]:
        """Remember a fit; what there is to say about it, which is nothing or one sentence."""
        fit, kind = _Fit(marks, receipt), (marks.encoding, receipt.unit)
        with self._lock:
            earlier = [one for one in self._fits if _is_again(one, fit)]
            self._fits = [*self._fits[-_MOST:], fit]
            # Once for all parts of a table: folds of a search may have nothing in common.
            if not earlier or kind in self._told:
                return []
            self._told.add(kind)
        costs = [one.receipt for one in (*earlier, fit)]
        cost = cost_text(
            exact_sum([one.epsilon for one in costs]), exact_sum([one.delta for one in costs])
        )
        return [
            f"this process has released these records, or part of them, {len(costs)} times: every "
            f"fit is a release, those of searches, clones and pipelines too. Together they cost "
            f"{cost} so far, and each further one adds its own; a ledger (`ledger=`) adds up and "
            "keeps to a limit. This is said once".replace("`", "")
        ]


def _is_again(old: _Fit, new: _Fit) -> bool:
    """Whether two fits released the same records, or many of them."""
    alike = ("neighbours", "unit")
    if any(getattr(old.receipt, name) != getattr(new.receipt, name) for name in alike):
        return False
    found = compared(new.marks, old.marks, "")
    return found is not None and max(found.share, found.old_share) >= _LEAST


TALLY = Tally()
