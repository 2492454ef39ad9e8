"""What a sketch will take on this machine, measured beforehand with the design's own kernels.

Public numbers drawn in the domain are quantised and summed as records are, in the same pieces and
on as many threads, for a twentieth of a second. What counts is processor time, a little more of
several threads, and of several runs the least: others who use the machine matter little then. No
record is read and nothing is spent.

Plans do not depend on it: a design is the same wherever it is made, and what is recommended rests
on the model of `sketching/cost`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from privsketch._base.errors import ParameterError, require_records
from privsketch._base.formats import canonical_json
from privsketch._base.threads import AHEAD_VALUES, checked_threads
from privsketch._base.types import Floats
from privsketch.design.recipe import Design
from privsketch.facts.domain import Ball, Domain
from privsketch.features.frequencies import NO_LAW
from privsketch.sketching.sums import RecordSums, rows_at_once, sum_records
from privsketch.tables.memory import rows_per_block

SECONDS, _MOST_SECONDS = 0.05, 0.2  # of measuring, and of a piece of records
_RUN, _MIN_RUNS = SECONDS / 2, 2  # threads need a while until they are at full speed
_WAITING = 1.3  # times the processor time that several threads take at most
_FEW = 64  # records of a first look, and the fewest that are timed: fewer leave vectors empty
_RECORD_VALUES = 2**20  # 8 MB: more than the caches of one core hold, as records that come by
_RECEIPT_BYTES = 560  # of a sketch file beside its design and its numbers, a short source included


@dataclass(frozen=True)
class Cost:
    """What sketching by a design takes on one machine.

    Attributes
    ----------
    seconds_per_million_records : float
        From records in memory to exact sums. Reading files, which overlaps with it, and noise, a
        fraction of a second in the end, come on top.
    n_threads : int
        That it was measured with.
    memory : int
        Bytes, about, beside those of Python and its libraries; it does not grow with the records.
    file_size : int
        Bytes of the sketch, about.

    Examples
    --------
    >>> cost = Cost(2.0, n_threads=2, memory=30_000_000, file_size=17_000)
    >>> cost.seconds(5e7)
    100.0
    >>> print(cost)
    time        2 s for a million records with 2 threads on this machine; reading files not included
    memory      about 30 MB, whatever the number of records
    sketch      a file of about 17 kB
    """

    seconds_per_million_records: float
    n_threads: int
    memory: int
    file_size: int

    def seconds(self, n_records: float) -> float:
        """Return the time for a number of records."""
        return self.seconds_per_million_records * (require_records(n_records) / 1e6)

    def describe(self) -> str:
        """Return the estimate in words, three lines."""
        threads = "1 thread" if self.n_threads == 1 else f"{self.n_threads} threads"
        return "\n".join(
            [
                f"time        {self.seconds_per_million_records:.2g} s for a million records with "
                f"{threads} on this machine; reading files not included",
                f"memory      about {_bytes(self.memory)}, whatever the number of records",
                f"sketch      a file of about {_bytes(self.file_size)}",
            ]
        )

    def __str__(self) -> str:
        return self.describe()


def estimate_cost(design: Design, *, n_threads: int | None = None) -> Cost:
    """Return time, memory and file size of a sketch on this machine, before any record is read.

    Charges: nothing. Kernels of the design are compiled, which `ps.sketch` then need not do, and
    run on public random numbers for about 50 ms; longer if a few records take longer. The time
    is that of cores which nobody else uses meanwhile.

    Parameters
    ----------
    design : Design
    n_threads : int, optional
        As many as there are cores if left out, as in `ps.sketch`.

    Examples
    --------
    >>> import privsketch as ps
    >>> design = ps.Design.plan(n_components=2, domain=ps.Box(-1, 1, dim=2),
    ...                         budget=ps.Budget(epsilon=1.0, delta=1e-6), random_state=0)
    >>> cost = ps.estimate_cost(design, n_threads=1)
    >>> 0 < cost.seconds(2e6) == 2 * cost.seconds_per_million_records
    True
    """
    if not isinstance(design, Design):
        raise ParameterError(f"design: expected a Design, got {type(design).__name__}")
    threads = checked_threads(n_threads)
    summer = RecordSums(design)
    rows = rows_at_once(design.dim, summer)
    records = public_records(design.domain, max(rows, _RECORD_VALUES // design.dim))

    def run(rows: int, n_pieces: int, threads: int = 1) -> float:
        """Return seconds per record, of pieces that lie in memory one after the other."""
        n_places = len(records) // rows
        starts = (rows * (piece % n_places) for piece in range(n_pieces))
        pieces = [records[start : start + rows] for start in starts]
        clocks = time.process_time, time.thread_time, time.perf_counter
        before = [clock() for clock in clocks]
        sum_records(pieces, design.domain, summer, n_threads=threads)
        busy, own, passed = (clock() - start for clock, start in zip(clocks, before, strict=True))
        if threads == 1:  # others may still be awake, of matrix products that are done
            return (own or passed) / (rows * n_pieces)
        # One thread hands out and adds up: no number of others makes that faster. Threads wait for
        # each other, but not long: what is beyond that was somebody else's time.
        least = max(busy / threads, own) or passed
        return min(passed, _WAITING * least) / (rows * n_pieces)

    few = min(rows, _FEW)
    run(few, 1)  # compiles
    # As many records as a thread works on, since a piece costs something by itself, or what takes
    # not too long.
    rows = min(rows, max(few, int(_MOST_SECONDS / min(run(few, 1), run(few, 1)))))
    per_thread = max(1, int(_RUN / (rows * run(rows, 1))))
    seconds: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(seconds) < _MIN_RUNS or time.perf_counter() < end:
        seconds.append(run(rows, per_thread * threads, threads))
    return Cost(min(seconds) * 1e6, threads, _memory(design, summer, threads), _file_size(design))


def public_records(domain: Domain, n: int) -> Floats:
    """Return numbers (n, dim) in a domain, where most records lie."""
    half = domain.half_widths
    if isinstance(domain, Ball):
        half = half / np.sqrt(len(half))
    unit = np.random.default_rng(0).uniform(-1.0, 1.0, (n, len(half)))
    return np.asarray(domain.center_vector + half * unit)


def _memory(design: Design, summer: RecordSums, threads: int) -> int:
    """Return bytes of what is read ahead, of what threads work on, and of the frequencies."""
    dim, m = design.dim, design.n_features
    rows = rows_at_once(dim, summer)
    ahead = 8 * max(AHEAD_VALUES, 2 * threads * rows * dim) + 2 * 8 * dim * rows_per_block(dim)
    piece = 10 * rows * dim + 4 * 8 * summer.length
    masks = design.masks
    if masks is not None and masks.features in ("uniform", "poisson"):
        piece += 4 * rows * m  # a byte each, and copies
    dense = design.frequencies.law not in ("structured", NO_LAW)
    return ahead + threads * piece + (3 * 2 * m * dim if dense else 0)


def _file_size(design: Design) -> int:
    noise = design.sum_noise
    numbers = noise.sums_law.n_components + (noise.count_law is not None)
    return 8 * numbers + len(canonical_json(design.to_json())) + _RECEIPT_BYTES


def _bytes(count: int) -> str:
    if count < 1000:
        return f"{count} B"
    return f"{count / 1000:.3g} kB" if count < 1e6 else f"{count / 1e6:.3g} MB"
