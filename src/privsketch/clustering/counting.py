"""How many records there are, where nobody said it: public, or paid for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np

from privsketch._typing import Integers, Whole
from privsketch.budget import Budget, Receipt
from privsketch.clustering.passes import Passes
from privsketch.errors import require_records
from privsketch.noise.account import Account
from privsketch.noise.calibration import rho_of_budget
from privsketch.noise.shares import Shares

COUNT_SHARE = Fraction(1, 50)
Close = Callable[[Receipt], Receipt]


def known_number(
    passes: Passes, budget: Budget, n_records: float | None
) -> tuple[float, Budget, Close]:
    """The number of records, the budget that is left, and what makes one receipt of both.

    A number that was given is used as it is. If "replace" makes it public, it is counted; else
    a noisy one is released.

    Charges: a fiftieth of the budget if it was neither given nor public.
    """
    if n_records is not None:
        return require_records(n_records), budget, _as_it_is

    def work(records: Whole) -> tuple[Integers, ...]:
        return (np.array([records.shape[0]], dtype=np.int64),)

    exact = passes.sums(work, "number of records")[0]
    if budget.neighbours == "replace":
        return float(exact[0]), budget, _as_it_is
    shares = {"number of records": COUNT_SHARE, "clusters": 1 - COUNT_SHARE}
    account = Account(Shares(budget, shares))
    noisy, _ = account.counts("number of records", exact)
    left = account.budget("clusters")

    def close(receipt: Receipt) -> Receipt:
        rho = 0.0 if account.shares.is_pure else rho_of_budget(left.epsilon, left.delta)
        account.charge(replace(receipt, source=None), rho)
        return account.receipt(receipt.mechanism, receipt.source)

    return max(float(noisy[0]), 1.0), left, close


def count_mode(budget: Budget, n_records: float | None) -> str:
    """What `known_number` is, as models say it."""
    if n_records is not None:
        return "stated"
    return "public" if budget.neighbours == "replace" else "released"


def _as_it_is(receipt: Receipt) -> Receipt:
    return receipt
