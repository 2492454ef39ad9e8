"""Tools to test mechanisms with: noise that is recorded, replaced or left out; neighbouring tables.

For the tests of this package, and for those who build mechanisms on its noise function. Releases
made with any of these have receipts that say INSECURE, for good.

The strongest of them is `replay`. It runs a mechanism on a table and notes what it asks of the
noise; then it runs it on a neighbouring table and gives the same answers. The second run must ask
the same questions, about values that differ by no more than their laws declare, at a cost within
the receipt. What differs otherwise has not passed through the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from privsketch._typing import Floats, Integers
from privsketch.budget import Neighbours, Receipt, exact
from privsketch.domain import Domain
from privsketch.noise.calibration import rho_of_budget
from privsketch.noise.mechanism import NoiseLaw, Sampler, _insecure_sampler

# ---------------------------------------------------------------- noise that is replaced


def replaced_noise(sampler: Sampler) -> AbstractContextManager[None]:
    """Draw noise from `sampler` inside a with block.

    It gets the exact integers and a law, and returns noisy integers and the scale used.
    """
    return _insecure_sampler(sampler)


def without_noise() -> AbstractContextManager[None]:
    """Release the exact integers inside a with block.

    Examples
    --------
    >>> import numpy as np
    >>> import privsketch as ps
    >>> from privsketch.testing import without_noise
    >>> design = ps.Design.plan(n_components=2, domain=ps.Box(-1, 1, dim=2),
    ...                         budget=ps.Budget(epsilon=1.0, delta=1e-6), random_state=0)
    >>> with without_noise():
    ...     exact = ps.sketch(np.zeros((10, 2)), design)
    >>> exact.n_records, exact.receipt.sampler
    (10.0, 'INSECURE: replaced for a test')
    """
    return replaced_noise(lambda values, law: (values.copy(), law.scale))


@dataclass(frozen=True, eq=False)
class Question:
    """What a mechanism asked of the noise, and what it was answered."""

    values: Integers
    law: NoiseLaw
    answer: Integers


def questions(run: Callable[[], Any], *, noisy: bool = False) -> list[Question]:
    """All that a run asks of the noise.

    It is answered with what it asks about, or with noise of the right size if `noisy`; choices
    fall on the first, or by chance.
    """
    tape = Tape(spread=1.0 if noisy else 0.0)
    with replaced_noise(tape.record):
        run()
    return tape.questions


class Tape:
    """Questions of a run and their answers, for another run to be given.

    Answers are floats' work, from a fixed seed, and prove nothing: a replay compares what was
    asked. `spread` scales their noise, and `push` moves all of them in one direction, in
    standard deviations.
    """

    def __init__(self, *, spread: float = 1.0, push: float = 0.0) -> None:
        self._rng = np.random.default_rng(7)
        self._spread, self._push = spread, push
        self.questions: list[Question] = []
        self.again: list[Integers] = []

    def record(self, values: Integers, law: NoiseLaw) -> tuple[Integers, float]:
        """A sampler that notes what it is asked."""
        answer = self._answer(values, law)
        self.questions.append(Question(values.copy(), law, answer))
        return answer.copy(), law.scale

    def replay(self, values: Integers, law: NoiseLaw) -> tuple[Integers, float]:
        """A sampler that gives the answers again, in order; AssertionError for other questions."""
        if len(self.again) >= len(self.questions):
            raise AssertionError("more questions than before")
        known = self.questions[len(self.again)]
        if law != known.law:
            raise AssertionError("a question with another law")
        if law.kind != "threshold" and values.shape != known.values.shape:
            raise AssertionError("a question of another shape")
        self.again.append(values.copy())
        return known.answer.copy(), law.scale

    def _answer(self, values: Integers, law: NoiseLaw) -> Integers:
        rng, scale = self._rng, law.scale * self._spread
        if law.kind == "choice":
            noisy = values + scale * rng.gumbel(size=len(values))
            return np.array([noisy.argmin()]) if scale else np.zeros(1, dtype=np.int64)
        if law.kind == "threshold":
            counts = np.zeros(law.n_components)
            counts[values[:, 0]] = values[:, 1]
            counts += scale * rng.laplace(size=law.n_components)
            return np.flatnonzero(counts >= getattr(law, "threshold", 1)).astype(np.int64)
        if law.kind == "picks":
            noisy = np.abs(values) + scale * rng.gumbel(size=values.shape)
            return np.argsort(-noisy, axis=1)[:, : getattr(law, "n_picks", 1)].astype(np.int64)
        deviation = math.sqrt(law.variance)
        noise = self._spread * rng.laplace(scale=math.sqrt(0.5), size=values.shape) + self._push
        return values + np.rint(deviation * noise).astype(np.int64)


# ---------------------------------------------------------------- what a neighbour moves


def moved(before: Integers, after: Integers, law: NoiseLaw) -> tuple[Fraction | float, Fraction]:
    """How far a question moved, over what its law declares, and what that costs, exactly.

    The cost is an epsilon, for Gaussian noise a rho. AssertionError if the law's scale does not
    fit its own sensitivity and budget.
    """
    if law.kind == "threshold":
        counts = np.zeros(law.n_components, dtype=np.int64)
        counts[before[:, 0]] += before[:, 1]
        counts[after[:, 0]] -= after[:, 1]
        before, after = counts, np.zeros_like(counts)
    change = [int(b) - int(a) for b, a in zip(before.reshape(-1), after.reshape(-1), strict=True)]
    sensitivity, scale = Fraction(law.sensitivity), Fraction(law.scale)
    sizes = [abs(step) for step in change] or [0]
    if law.kind == "gaussian":
        _require(sensitivity**2 <= 2 * Fraction(law.rho) * scale**2, "a scale below its law's")
        squared = sum(size**2 for size in sizes)
        return math.sqrt(squared / sensitivity**2), squared / (2 * scale**2)
    if law.kind == "choice":  # what all losses have in common tells nothing
        if law.neighbours == "add-remove":
            same_way = min(change) >= 0 or max(change) <= 0
            _require(same_way, "losses that one record moves both ways")
            return max(sizes) / sensitivity, max(sizes) / scale
        return max(sizes) / sensitivity, (max(change) - min(change)) / scale
    if law.kind == "picks":  # each normaliser, and the numerators of those picked
        n_picks = getattr(law, "n_picks", 1)
        rows = np.sort(np.abs(before - after), axis=1)[:, ::-1]
        total = int((n_picks * rows[:, 0] + rows[:, :n_picks].sum(axis=1)).sum())
        twice = 1 if law.neighbours == "add-remove" else 2
        return total / (twice * sensitivity), total / scale
    _require(sensitivity <= scale * exact(law.inner), "a scale below its law's")
    size = max(sizes) if law.kind == "cube" else sum(sizes)
    return size / sensitivity, size / scale


@dataclass(frozen=True)
class Replayed:
    """What a replay found: 1 is all that laws declare, or all that the receipt has."""

    largest_move: float
    share_of_budget: float
    first: Any = field(repr=False)
    second: Any = field(repr=False)


def replay(
    run: Callable[[Any], Any], table: Any, neighbour: Any, tape: Tape | None = None
) -> Replayed:
    """Run a mechanism on two neighbouring tables, the second time with the answers of the first.

    `run` takes a table and returns anything with a `receipt` (or `receipt_`). AssertionError if
    the second run asks other questions, if a value moved further than its law declares, or if
    all moves together cost more than the receipt says. Compare `first` and `second` yourself:
    they must be the same.

    Examples
    --------
    >>> import numpy as np
    >>> import privsketch as ps
    >>> from privsketch.testing import replay
    >>> table = np.random.default_rng(0).uniform(-1, 1, size=(100, 2))
    >>> model = ps.PrivateKMeans(2, epsilon=1.0, delta=1e-6, domain=ps.Ball(2, 1.5), method="lloyd",
    ...                          random_state=0)
    >>> found = replay(lambda rows: model.fit(rows).model_, table, table[1:])
    >>> bool(0 < found.share_of_budget <= 1)
    True
    """
    tape = tape or Tape()
    with replaced_noise(tape.record):
        first = run(table)
    with replaced_noise(tape.replay):
        second = run(neighbour)
    _require(len(tape.again) == len(tape.questions), "fewer questions than before")
    receipt = _receipt(first)
    largest: Fraction | float = 0
    epsilon, rho = Fraction(0), Fraction(0)
    for question, after in zip(tape.questions, tape.again, strict=True):
        _require(question.law.neighbours == receipt.neighbours, "a law for another relation")
        far, cost = moved(question.values, after, question.law)
        largest = max(largest, far)
        if question.law.kind == "gaussian":
            rho += cost
        else:
            epsilon += cost
    _require(largest <= 1 + 1e-15, "more than a law declares")
    if receipt.delta > 0:  # what is epsilon-private is (epsilon^2 / 2)-zCDP
        share = (rho + epsilon**2 / 2) / Fraction(rho_of_budget(receipt.epsilon, receipt.delta))
    else:
        _require(rho == 0, "Gaussian noise without a delta")
        share = epsilon / exact(receipt.epsilon)
    _require(share <= 1, "more than the receipt says")
    same = _unnamed(receipt) == _unnamed(_receipt(second))
    _require(same, "a receipt that depends on records")
    return Replayed(float(largest), float(share), first, second)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)


def _receipt(result: Any) -> Receipt:
    found = getattr(result, "receipt", None) or result.receipt_
    if not isinstance(found, Receipt):
        raise TypeError("run: expected a result with a receipt")
    return found


def _unnamed(receipt: Receipt) -> Receipt:
    """Without names of sources: sketches get random ones."""
    return replace(receipt, source=None, parts=tuple(_unnamed(part) for part in receipt.parts))


# ---------------------------------------------------------------- neighbouring tables


def neighbouring_tables(
    table: Floats, domain: Domain, neighbours: Neighbours
) -> Iterator[tuple[str, Floats, Floats]]:
    """Pairs of tables that differ in one record, by the name of what changes.

    Records that are removed, far out, missing, at the edge of the domain or in a corner of it; and
    a table without records beside one with a single record, where their number is private.
    """
    dim, half = table.shape[1], domain.half_widths
    center = domain.center_vector
    new = {
        "edge": center - np.eye(dim)[0] * half,
        "corner": center + half / math.sqrt(dim),
        "outlier": np.full(dim, -1e300),
        "missing": np.full(dim, math.nan),
    }
    if neighbours == "add-remove":
        yield "none", table[:0], table[:1]
        yield "removed", table, table[:-1]
    rest = table if neighbours == "add-remove" else table[1:]
    for name, record in new.items():
        yield name, table, np.concatenate([rest, record[np.newaxis]])
