"""Ledgers under kill -9: 64 processes spend at a time, some are killed at random moments.

    python -m benchmarks ledger                   1,000 schedules of 64 workers
    python -m benchmarks ledger 20 --folder DIR   20 of them, on the file system of DIR

A worker makes one to three releases: it reserves a random fraction, writes a line to a file of its
own, as the result, and commits, sometimes for less. Up to half of the workers get SIGKILL: from
outside, at moments uniform over the time that a schedule takes, or by themselves before a random
line of Python that they would run, since they mostly wait. Then every result must have an entry,
all entries together must be within the limit, and totals the exact sums of what the workers meant
to spend, which follows from their seeds; the rest is spent exactly, and 1e-300 more is refused.
Files lie in memory if there is a place for them: what a process leaves behind when it is killed
does not depend on disks. This file imports nothing heavy, because it forks 64,000 times.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

from privsketch._base.errors import BudgetError
from privsketch.ledger.book import Ledger
from privsketch.ledger.cost import Cost

WORKERS = 64
NAME = "records"
MAX_LINES = 12_000  # of Python that three releases take, about
MEMORY = Path("/dev/shm")


def meant(schedule: int, worker: int) -> list[tuple[Cost, Cost | None]]:
    """Return the cost that a worker reserves, and the lower cost that it commits, if any."""
    rng = random.Random(f"{schedule} {worker}")
    found: list[tuple[Cost, Cost | None]] = []
    for _ in range(rng.randint(1, 3)):
        epsilon = Fraction(rng.randint(1, 10**6), rng.randint(10**6, 10**7))
        delta = Fraction(rng.randint(0, 1), rng.randint(10**6, 10**9))
        less = Fraction(rng.randint(1, 100), 100)
        lower = Cost(epsilon * less, delta * less) if rng.random() < 0.5 else None
        found.append((Cost(epsilon, delta), lower))
    return found


def die_at(n_lines: int) -> None:
    """Be killed before that many lines of Python more."""
    left = n_lines

    def trace(*_: object) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)


def work(path: Path, schedule: int, worker: int, *, careless: bool = False) -> None:
    """Run one process; a careless one writes its result before it reserves the cost."""
    ledger = Ledger(path)
    with open(path.parent / f"{worker}.results", "ab", buffering=0) as results:
        for step, (cost, lower) in enumerate(meant(schedule, worker)):
            what = f"{worker} {step}"
            if careless:
                results.write(f"{what}\n".encode())
            try:
                entry = ledger.reserve(NAME, cost, what=what)
            except BudgetError:
                continue
            if not careless:
                results.write(f"{what}\n".encode())
            os.fsync(results.fileno())
            ledger.commit(entry, cost=lower, receipt={"worker": worker})


def run(
    folder: Path, schedule: int, seconds: float, workers: int = WORKERS, *, careless: bool = False
) -> tuple[Counter[str], float]:
    """One schedule, checked: what happened, and how long it took; an AssertionError if wrong."""
    rng = random.Random(f"kills {schedule}")
    path = folder / "budget.ledger"
    limit = Cost(Fraction(rng.randint(1, 400), 97), Fraction(rng.randint(1, 50), 10**6 + 3))
    ledger = Ledger.create(path)
    ledger.add(NAME, epsilon=limit.epsilon, delta=limit.delta)
    start = time.perf_counter()
    running: dict[int, int] = {}
    victims = rng.sample(range(workers), rng.randint(0, workers // 2))
    lines = {worker: rng.randrange(MAX_LINES) for worker in victims[::2]}
    for worker in range(workers):
        process = os.fork()
        if process == 0:
            code = 1
            try:
                if worker in lines:
                    die_at(lines[worker])
                work(path, schedule, worker, careless=careless)
                code = 0
            finally:
                os._exit(code)
        running[process] = worker
    others = set(victims[1::2])
    moments = sorted(
        (rng.uniform(0, seconds), process)
        for process, worker in running.items()
        if worker in others
    )
    codes: Counter[str] = Counter()
    while running:
        while moments and time.perf_counter() - start >= moments[0][0]:
            process = moments.pop(0)[1]
            if process in running:
                os.kill(process, signal.SIGKILL)
        process, status = os.waitpid(-1, os.WNOHANG)
        if process:
            del running[process]
            killed = os.WIFSIGNALED(status)
            codes["killed" if killed else f"exit {os.WEXITSTATUS(status)}"] += 1
        else:
            time.sleep(0.001)
    took = time.perf_counter() - start
    require(set(codes) <= {"killed", "exit 0"}, f"workers failed: {dict(codes)}")
    return codes + examine(folder, ledger, schedule, limit), took


def require(fact: bool, what: str) -> None:
    """Raise an error unless the statement holds."""
    if not fact:
        raise AssertionError(what)


def examine(folder: Path, ledger: Ledger, schedule: int, limit: Cost) -> Counter[str]:
    """Whether the ledger tells the truth after a schedule."""
    require(ledger.check() == [], "; ".join(ledger.check()))
    entries = {entry.what: entry for entry in ledger.entries(NAME)}
    require(len(entries) == len(ledger.entries(NAME)), "an entry was made twice")
    epsilon = delta = Fraction(0)
    for what, entry in entries.items():
        worker, step = map(int, what.split())
        cost, lower = meant(schedule, worker)[step]
        if entry.state == "committed" and lower is not None:
            cost = lower
        require((entry.cost.epsilon, entry.cost.delta) == (cost.epsilon, cost.delta), "a cost")
        epsilon, delta = epsilon + cost.epsilon, delta + cost.delta
    total = ledger.total(NAME)
    require((total.epsilon, total.delta) == (epsilon, delta), "totals are no exact sums")
    require(epsilon <= limit.epsilon and delta <= limit.delta, "above the limit")
    results = [
        line
        for file in folder.glob("*.results")
        for line in file.read_text().split("\n")[:-1]  # a line without an end was not written
    ]
    require(set(results) <= set(entries), "a result without an entry")
    ledger.reserve(NAME, Cost(limit.epsilon - epsilon, limit.delta - delta), what="the rest")
    try:
        ledger.reserve(NAME, Cost(Fraction("1e-300")), what="more")
        require(False, "1e-300 more was allowed")
    except BudgetError:
        pass
    n_open = sum(entry.state == "reserved" for entry in entries.values())
    left = [file.name for file in folder.iterdir() if file.suffix == ".part"]
    require(not left, "a file was left behind")
    return Counter(
        entries=len(entries),
        results=len(results),
        uncommitted=n_open,
        lost=len(entries) - len(results),
    )


def main() -> None:
    """Run and count."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("schedules", nargs="?", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--folder", type=Path, default=MEMORY if MEMORY.is_dir() else None)
    parser.add_argument("--first", type=int, default=0, help="Number of the first schedule.")
    asked = parser.parse_args()
    seen: Counter[str] = Counter()
    seconds, begin = 0.5, time.perf_counter()
    for schedule in range(asked.first, asked.first + asked.schedules):
        with tempfile.TemporaryDirectory(dir=asked.folder) as name:
            counts, took = run(Path(name), schedule, seconds, asked.workers)
        seconds += (took - seconds) / 10  # kills fall into the time that workers take
        seen += counts
        if (schedule + 1) % 50 == 0:
            print(f"{schedule + 1} schedules: {dict(seen)}", flush=True)
    print(
        f"{asked.schedules} schedules of {asked.workers} workers, "
        f"{time.perf_counter() - begin:.0f} s: {dict(seen)}\n"
        "never above a limit, no result without an entry, totals exact, 1e-300 more refused"
    )


if __name__ == "__main__":
    main()
