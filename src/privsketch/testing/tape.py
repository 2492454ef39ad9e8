"""Tools for tests of mechanisms: noise that is recorded or replaced; neighbouring tables.

They serve the tests of this package, and authors who build mechanisms on its noise function.
Receipts of releases that are made with them say INSECURE.

The strongest tool is `replay`. It runs a mechanism on a table and records what the mechanism asks
of the noise. Then it runs the mechanism on a neighbouring table and gives the same answers. The
second run must ask the same questions, about values that differ by no more than their laws declare,
at a cost within the receipt. Anything else that differs has not passed through the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from privsketch._base.types import Floats, Integers
from privsketch.facts.budget import Neighbours, exact
from privsketch.facts.domain import Domain
from privsketch.facts.receipt import Receipt
from privsketch.noise.calibration import rho_of_budget
from privsketch.noise.mechanism import NoiseLaw, Sampler, _insecure_sampler
from privsketch.noise.zoom import ZoomLaw

Answer = Callable[[Integers, NoiseLaw], Integers]
Result = TypeVar("Result")

# ---------------------------------------------------------------- noise that is replaced


def replaced_noise(sampler: Sampler) -> AbstractContextManager[None]:
    """Draw noise from `sampler` inside a with block.

    Parameters
    ----------
    sampler : callable
        Takes exact integers and a law, and returns noisy integers and the scale used.

    Examples
    --------
    >>> import numpy as np
    >>> from privsketch.noise.mechanism import add_noise, laplace_law
    >>> from privsketch.testing import replaced_noise
    >>> with replaced_noise(lambda values, law: (values + 5, law.scale)):
    ...     noisy, receipt = add_noise(
    ...         np.array([1, 2]), laplace_law(1, 2, 1.0, "add-remove"), source=None)
    >>> noisy.tolist(), receipt.sampler
    ([6, 7], 'INSECURE: replaced for a test')
    """
    return _insecure_sampler(sampler)


def exact_answer(values: Integers, law: NoiseLaw) -> Integers:
    """Return the answer without noise: the integers, or the best choice.

    Examples
    --------
    >>> import numpy as np
    >>> from privsketch.noise.choice import choice_law
    >>> from privsketch.testing import exact_answer
    >>> exact_answer(np.array([7, 4, 9]), choice_law(9, 3, 1.0, "add-remove")).tolist()
    [1]
    """
    if law.kind == "choice":
        return np.array([values.argmin()])
    if law.kind == "threshold":
        return np.flatnonzero(_all_counts(values, law) >= getattr(law, "threshold", 1))
    if law.kind == "picks":
        return np.argsort(-np.abs(values), axis=1)[:, : getattr(law, "n_picks", 1)]
    if law.kind == "zoom":
        return np.stack([values, values])
    return values.copy()


def _all_counts(values: Integers, law: NoiseLaw) -> Integers:
    """Return the counts of all indices, from rows (index, count)."""
    counts = np.zeros(law.n_components, dtype=np.int64)
    counts[values[:, 0]] = values[:, 1]
    return counts


# ---------------------------------------------------------------- questions and answers


@dataclass(frozen=True, eq=False)
class Question:
    """One draw: the exact integers and the law that a mechanism gave, and the answer it got."""

    values: Integers
    law: NoiseLaw
    answer: Integers


def questions(
    run: Callable[[], Any], *, noisy: bool = False, answer: Answer = exact_answer
) -> list[Question]:
    """Return all questions that a run asks of the noise.

    Parameters
    ----------
    run : callable
        Function without parameters that releases something.
    noisy : bool
        Whether to answer with noise of the right size, and with random choices.
    answer : callable
        If not `noisy`: maps exact integers and a law to an answer, by default without noise.

    Examples
    --------
    >>> import numpy as np
    >>> from privsketch.noise.mechanism import add_noise, laplace_law
    >>> from privsketch.testing import questions
    >>> law = laplace_law(3, 2, 0.5, "add-remove")
    >>> asked = questions(lambda: add_noise(np.array([5, 6]), law, source=None))
    >>> [(question.values.tolist(), question.law.scale) for question in asked]
    [([5, 6], 6.0)]
    """
    tape = Tape() if noisy else Tape(answer=answer)
    tape.recorded(run)
    return tape.questions


class Tape:
    """Recorded questions and answers of one run, to be replayed to another run.

    Parameters
    ----------
    spread, push : float
        `spread` scales the noise of answers, and `push` moves all of them in one direction, in
        standard deviations. Answers are drawn with floats from a fixed seed: a replay compares
        questions, so they need not be exact.
    answer : callable
        Maps exact integers and a law to an answer, in place of noise.

    Attributes
    ----------
    questions : list of Question
        Questions of the recorded run, with their answers.
    again : list of array
        Exact integers of the replayed run.

    Examples
    --------
    >>> import numpy as np
    >>> from privsketch.noise.mechanism import add_noise, laplace_law
    >>> from privsketch.testing import Tape
    >>> law, tape = laplace_law(1, 2, 1.0, "add-remove"), Tape()
    >>> one, _ = tape.recorded(lambda: add_noise(np.array([5, 6]), law, source=None))
    >>> other, _ = tape.replayed(lambda: add_noise(np.array([5, 7]), law, source=None))
    >>> bool((one == other).all()), tape.again[0].tolist()
    (True, [5, 7])
    """

    def __init__(
        self, *, spread: float = 1.0, push: float = 0.0, answer: Answer | None = None
    ) -> None:
        self._rng = np.random.default_rng(7)
        self._spread, self._push = spread, push
        self._answer = answer or self._noisy
        self.questions: list[Question] = []
        self.again: list[Integers] = []

    @property
    def laws(self) -> list[NoiseLaw]:
        """Laws of all questions, in order."""
        return [question.law for question in self.questions]

    def recorded(self, run: Callable[[], Result]) -> Result:
        """Record the questions of a run, and return its result."""
        with replaced_noise(self.record):
            return run()

    def replayed(self, run: Callable[[], Result]) -> Result:
        """Replay the answers to a run, and return its result; refuse other questions."""
        self.again.clear()
        with replaced_noise(self.replay):
            result = run()
        require(len(self.again) == len(self.questions), "fewer questions than before")
        return result

    def record(self, values: Integers, law: NoiseLaw) -> tuple[Integers, float]:
        """Answer and record a question: the sampler of `recorded`."""
        answer = self._answer(values, law)
        self.questions.append(Question(values.copy(), law, answer))
        return answer.copy(), law.scale

    def replay(self, values: Integers, law: NoiseLaw) -> tuple[Integers, float]:
        """Repeat the next answer, the sampler of `replayed`; refuse other questions."""
        require(len(self.again) < len(self.questions), "more questions than before")
        question = self.questions[len(self.again)]
        require(law == question.law, "a question with another law")
        same_shape = law.kind == "threshold" or values.shape == question.values.shape
        require(same_shape, "a question of another shape")
        self.again.append(values.copy())
        return question.answer.copy(), law.scale

    def _noisy(self, values: Integers, law: NoiseLaw) -> Integers:
        rng, scale = self._rng, law.scale * self._spread
        if law.kind == "choice":
            return np.array([(values + scale * rng.gumbel(size=len(values))).argmin()])
        if law.kind == "threshold":
            counts = _all_counts(values, law) + scale * rng.laplace(size=law.n_components)
            return np.flatnonzero(counts >= getattr(law, "threshold", 1)).astype(np.int64)
        if law.kind == "picks":
            noisy = np.abs(values) + scale * rng.gumbel(size=values.shape)
            return np.argsort(-noisy, axis=1)[:, : getattr(law, "n_picks", 1)].astype(np.int64)
        if isinstance(law, ZoomLaw):
            near, far = (rng.laplace(scale=scale * size, size=len(values)) for size in (1, 2))
            closer = values + np.rint(near).astype(np.int64)
            first = closer + np.rint(np.where(rng.random(len(values)) < 0.25, 0, far)).astype(int)
            return np.stack([first, np.where(law.is_heavy(first), first, closer)])
        deviation = math.sqrt(law.variance)
        noise = self._spread * rng.laplace(scale=math.sqrt(0.5), size=values.shape) + self._push
        return values + np.rint(deviation * noise).astype(np.int64)


# ---------------------------------------------------------------- what a neighbour moves


def moved(
    before: Integers, after: Integers, law: NoiseLaw, answer: Integers | None = None
) -> tuple[Fraction | float, Fraction]:
    """Return how far a question moved relative to what its law declares, and the exact cost.

    The cost is an epsilon, or a rho for Gaussian noise. Where it depends on the answer, as for
    heavy cells, `answer` is needed. Raise AssertionError if the law's scale does not fit its own
    sensitivity and budget.

    Examples
    --------
    >>> import numpy as np
    >>> from privsketch.noise.mechanism import laplace_law
    >>> from privsketch.testing import moved
    >>> moved(np.array([5, 6]), np.array([5, 7]), laplace_law(4, 2, 1.0, "add-remove"))
    (Fraction(1, 4), Fraction(1, 4))
    """
    if law.kind == "threshold":
        before, after = _all_counts(before, law), _all_counts(after, law)
    change = [int(b) - int(a) for b, a in zip(before.reshape(-1), after.reshape(-1), strict=True)]
    sensitivity, scale = Fraction(law.sensitivity), Fraction(law.scale)
    sizes = [abs(step) for step in change] or [0]
    if law.kind == "gaussian":
        require(sensitivity**2 <= 2 * Fraction(law.rho) * scale**2, "a scale below its law's")
        squared = sum(size**2 for size in sizes)
        return math.sqrt(squared / sensitivity**2), squared / (2 * scale**2)
    if law.kind == "choice":  # what all losses have in common tells nothing
        if law.neighbours == "add-remove":
            same_way = min(change) >= 0 or max(change) <= 0
            require(same_way, "losses that one record moves both ways")
            return max(sizes) / sensitivity, max(sizes) / scale
        return max(sizes) / sensitivity, (max(change) - min(change)) / scale
    if law.kind == "picks":  # each normaliser, and the numerators of those picked
        n_picks = getattr(law, "n_picks", 1)
        rows = np.sort(np.abs(before - after), axis=1)[:, ::-1]
        total = int((n_picks * rows[:, 0] + rows[:, :n_picks].sum(axis=1)).sum())
        factor = 1 if law.neighbours == "add-remove" else 2
        return total / (factor * sensitivity), total / scale
    require(sensitivity <= scale * exact(law.inner), "a scale below its law's")
    if isinstance(law, ZoomLaw):
        require(answer is not None, "two noisy counts without their answer")
        heavy = [] if answer is None else law.is_heavy(answer[0]).tolist()
        halves = sum(far * (1 if one else 2) for far, one in zip(sizes, heavy, strict=True))
        return sum(sizes) / sensitivity, halves / (2 * scale)
    size = max(sizes) if law.kind == "cube" else sum(sizes)
    return size / sensitivity, size / scale


@dataclass(frozen=True)
class Replayed:
    """Result of a replay.

    Attributes
    ----------
    laws : tuple of NoiseLaw
        Laws of all questions, in order.
    moves : tuple of float
        How far each question moved; 1 is what its law declares.
    share_of_budget : float
        Cost of all moves together; 1 is the cost that the receipt states.
    first, second : object
        Results of the two runs.
    """

    laws: tuple[NoiseLaw, ...] = field(repr=False)
    moves: tuple[float, ...] = field(repr=False)
    share_of_budget: float
    first: Any = field(repr=False)
    second: Any = field(repr=False)

    @property
    def largest_move(self) -> float:
        """Largest move of all questions."""
        return max(self.moves, default=0.0)

    def moves_of(self, kind: str) -> tuple[float, ...]:
        """Return the moves of questions with laws of one kind."""
        pairs = zip(self.laws, self.moves, strict=True)
        return tuple(move for law, move in pairs if law.kind == kind)


def replay(
    run: Callable[[Any], Any],
    table: Any,
    neighbour: Any,
    tape: Tape | None = None,
    *,
    check: bool = True,
) -> Replayed:
    """Run a mechanism on two neighbouring tables, the second time with the answers of the first.

    Raise AssertionError if the second run asks other questions, if a value moved further than its
    law declares, or if all moves together cost more than the receipt says. Compare `first` and
    `second` of the result yourself: they must be the same.

    Parameters
    ----------
    run : callable
        Takes a table and returns an object with a `receipt` (or `receipt_`).
    table, neighbour : table
        Tables that differ in one record.
    tape : Tape, optional
        Empty tape, for other answers than noise of the right size.
    check : bool
        Whether moves and their cost must be within laws and receipt. With False, a replay measures
        by how much a planted error exceeds them.

    Examples
    --------
    >>> import numpy as np
    >>> import privsketch as ps
    >>> from privsketch.testing import replay
    >>> table = np.random.default_rng(0).uniform(-1, 1, size=(100, 2))
    >>> model = ps.PrivateKMeans(2, epsilon=1.0, delta=1e-6, domain=ps.Ball(2, 1.5), method="lloyd",
    ...                          random_state=0)
    >>> replayed = replay(lambda rows: model.fit(rows).model_, table, table[1:])
    >>> bool(0 < replayed.share_of_budget <= 1)
    True
    """
    tape = tape or Tape()
    first = tape.recorded(lambda: run(table))
    second = tape.replayed(lambda: run(neighbour))
    receipt, moves = _receipt(first), []
    epsilon, rho = Fraction(0), Fraction(0)
    for question, after in zip(tape.questions, tape.again, strict=True):
        require(question.law.neighbours == receipt.neighbours, "a law for another relation")
        move, cost = moved(question.values, after, question.law, question.answer)
        moves.append(move)
        if question.law.kind == "gaussian":
            rho += cost
        else:
            epsilon += cost
    require(not check or max(moves, default=0) <= 1 + 1e-15, "more than a law declares")
    if receipt.delta > 0:  # what is epsilon-private is (epsilon^2 / 2)-zCDP
        share = (rho + epsilon**2 / 2) / Fraction(rho_of_budget(receipt.epsilon, receipt.delta))
    else:
        require(rho == 0, "Gaussian noise without a delta")
        share = epsilon / exact(receipt.epsilon)
    require(not check or share <= 1, "more than the receipt says")
    same = _unnamed(receipt) == _unnamed(_receipt(second))
    require(same, "a receipt that depends on records")
    return Replayed(tuple(tape.laws), tuple(map(float, moves)), float(share), first, second)


def require(is_met: bool, fault: str) -> None:
    """Raise AssertionError with a fault unless a condition is met."""
    if not is_met:
        raise AssertionError(fault)


def _receipt(result: Any) -> Receipt:
    receipt = getattr(result, "receipt", None) or result.receipt_
    if not isinstance(receipt, Receipt):
        raise TypeError("run: expected a result with a receipt")
    return receipt


def _unnamed(receipt: Receipt) -> Receipt:
    """Return a receipt without names of sources: sketches get random ones."""
    return replace(receipt, source=None, parts=tuple(_unnamed(part) for part in receipt.parts))


# ---------------------------------------------------------------- neighbouring tables


def neighbouring_tables(
    table: Floats, domain: Domain, neighbours: Neighbours
) -> Iterator[tuple[str, Floats, Floats]]:
    """Yield pairs of tables that differ in one record, each with the name of the change.

    The record is removed, far away, missing, at the edge of the domain or in a corner of it. Where
    the number of records is private, one pair is a table without records and one with a single one.

    Examples
    --------
    >>> import numpy as np
    >>> import privsketch as ps
    >>> from privsketch.testing import neighbouring_tables
    >>> pairs = neighbouring_tables(np.zeros((5, 2)), ps.Ball(2, 1.0), "add-remove")
    >>> [(name, len(one), len(other)) for name, one, other in pairs][:3]
    [('none', 0, 1), ('removed', 5, 4), ('edge', 5, 6)]
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
    base = table if neighbours == "add-remove" else table[1:]
    for name, record in new.items():
        yield name, table, np.concatenate([base, record[np.newaxis]])
