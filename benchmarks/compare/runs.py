"""Runs of the comparison: a process for each data set and repetition, a CSV row for each run.

A run that has its row is not made again, one that failed included: take its row out to try it
again. Rows are written as soon as they are known, in one piece, so that several processes may
write to one file. Time is measured in every run, on one thread. Memory is measured once for each
data set and method, in a process of its own that has nothing but the records: how far its peak
rises above what it had before.
"""

from __future__ import annotations

import csv
import io
import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare.cells import QUICK, Setting
from benchmarks.compare.methods import BASELINES, OURS, PeerMethod, Run, fitted, kind_of, serves
from benchmarks.datasets import DataSet, reference_error, squared_error
from benchmarks.peers.protocol import Peer, PeerError, PeerRefusal, PeerTimeoutError, Request, peak
from privsketch._base.errors import ParameterError
from privsketch._base.threads import one_thread
from privsketch._base.types import Floats
from privsketch.facts.domain import Ball, Box

FIELDS = (
    *("data", "n", "d", "k", "epsilon", "delta", "method", "kind", "seed"),
    *("rsse", "seconds", "peak_mb", "note"),
)
KEY = ("data", "epsilon", "delta", "method", "seed")
SEED = 20170612  # records are those of clustering.py
# 2 repetitions beyond as many columns, where a run takes ten seconds or more.
FEW = {"partition-tree": 50, "sample-aggregate": 50, "k-variates": 50, "pycle": 9}
FORK = multiprocessing.get_context("fork")
Key = tuple[str, ...]


@dataclass(frozen=True)
class Store:
    """A CSV of runs."""

    path: Path
    fields: tuple[str, ...] = FIELDS
    key: tuple[str, ...] = KEY

    def rows(self) -> list[dict[str, str]]:
        """All rows so far."""
        if not self.path.exists():
            return []
        with self.path.open(newline="") as file:
            return list(csv.DictReader(file))

    def done(self) -> set[Key]:
        """Return the keys of runs that have a row."""
        return {tuple(row[name] for name in self.key) for row in self.rows()}

    def key_of(self, **values: object) -> Key:
        """Return the key of a run."""
        return tuple(_text(values[name]) for name in self.key)

    def add(self, **values: object) -> None:
        """Write a row."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow([_text(values[f]) for f in self.fields])
        with self.path.open("a", newline="") as file:
            file.write(text.getvalue())

    def begin(self) -> None:
        """Write the names of the columns where there is no file yet."""
        if not self.path.exists():
            self.path.parent.mkdir(exist_ok=True)
            self.path.write_text(",".join(self.fields) + "\n")


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Task:
    """Runs on one table of records."""

    data: DataSet
    seed: int
    own: tuple[tuple[str, float, float], ...]  # method, epsilon, delta
    asked: tuple[tuple[PeerMethod, float, float], ...]


def tasks(
    settings: Iterable[Setting], peers: Sequence[PeerMethod], repetitions: int, store: Store
) -> list[Task]:
    """Return the runs without a row; first repetitions first."""
    found, done = [], store.done()
    for setting in settings:
        data, dim = setting.data, len(setting.data.domain.half_widths)
        for seed in range(min(repetitions, setting.repetitions)):

            def missing(name: str, epsilon: float, delta: float) -> bool:
                if seed >= 2 and dim > FEW.get(name, dim):  # noqa: B023
                    return False
                run = {"data": data.name, "method": name, "seed": seed}  # noqa: B023
                return store.key_of(**run, epsilon=epsilon, delta=delta) not in done

            own = tuple(
                (name, *budget)
                for name in setting.methods or (*OURS, *BASELINES)
                for budget in setting.budgets
                if serves(name, budget[1], dim) and missing(name, *budget)
            )
            asked = tuple(
                (peer, *budget)
                for peer in peers
                for budget in setting.budgets
                if missing(peer.name, *budget)
            )
            if own or asked:
                found.append(Task(data, seed, own, asked))
    return sorted(found, key=lambda task: task.seed)


def warm_up() -> None:
    """Compile what is compiled on first use, so that no run's time has it."""
    data = QUICK[0].data
    records = data.make(np.random.default_rng(0))
    for method in ("sketch", "pipeline", "cells"):
        fitted(method, data, records, 1.0, 1e-6, 0)


def run_all(work: Sequence[Task], store: Store, jobs: int, patience: float) -> None:
    """All tasks, `jobs` at a time, each in a process of its own."""
    waiting, running = list(work), dict[Any, Any]()
    while waiting or running:
        while waiting and len(running) < jobs:
            task = waiting.pop(0)
            process = FORK.Process(target=run_task, args=(task, store, patience))
            process.start()
            running[process.sentinel] = (process, task)
        for sentinel in wait(list(running)):
            process, task = running.pop(sentinel)
            process.join()
            if process.exitcode != 0:
                print(f"{task.data.name}, repetition {task.seed}: stopped", file=sys.stderr)


def run_task(task: Task, store: Store, patience: float) -> None:
    """All runs on one table, on one thread: pools of threads do not outlive a fork."""
    with one_thread():
        _run_task(task, store, patience)


def _run_task(task: Task, store: Store, patience: float) -> None:
    data, seed = task.data, task.seed
    records = data.make(np.random.default_rng([seed, SEED]))
    n, dim = records.shape
    reference = reference_error(records, data.n_clusters, seed)

    def add(method: str, epsilon: float, delta: float, run: Run | None, note: str = "") -> None:
        ratio = None if run is None else squared_error(records, run.centers) / reference
        store.add(
            data=data.name,
            n=n,
            d=dim,
            k=data.n_clusters,
            epsilon=epsilon,
            delta=delta,
            method=method,
            kind=kind_of(method),
            seed=seed,
            rsse=ratio,
            seconds=None if run is None else float(f"{run.seconds:.3g}"),
            peak_mb=None if run is None or run.peak_mb is None else round(run.peak_mb),
            note=note if run is None else run.note,
            concerns=None if run is None else run.concerns,
            expected=None if run is None else run.expected,
        )
        shown = note if ratio is None else f"{ratio:.4f}"
        print(f"{data.name} {epsilon:g} {delta:g} {method} {seed}: {shown}", flush=True)

    measured: set[str] = set()
    for method, epsilon, delta in task.own:
        alone = seed == 0 and method not in measured
        measured.add(method)
        try:
            arguments = (method, data, records, epsilon, delta, seed)
            run = in_a_child(fitted, arguments) if alone else fitted(*arguments)
        except ParameterError as error:
            print(f"{data.name} {method}: {error}", file=sys.stderr)
            continue
        add(method, epsilon, delta, run)
    if task.asked:
        ask_peers(task, records, reference / records.size, patience, add)


def in_a_child(fit: Callable[..., Run], arguments: tuple[Any, ...]) -> Run:
    """Run a method in a separate process; return its results with the peak of memory."""
    here, there = FORK.Pipe()
    process = FORK.Process(target=_child, args=(there, fit, arguments))
    process.start()
    there.close()
    try:
        result = here.recv()
    except EOFError:
        raise RuntimeError(f"{arguments[0]}: the process ended without a result") from None
    finally:
        process.join()
    if isinstance(result, Exception):
        raise result
    return result  # type: ignore[no-any-return]


def _child(answer: Connection, fit: Callable[..., Run], arguments: tuple[Any, ...]) -> None:
    before = peak()
    try:
        run = fit(*arguments)
        answer.send(replace(run, peak_mb=peak() - before))
    except Exception as error:
        answer.send(error)


def domain_as_json(domain: Box | Ball) -> dict[str, Any]:
    """Return a domain in the form that peers read."""
    center = domain.center_vector
    if isinstance(domain, Ball):
        return {"center": center.tolist(), "radius": domain.radius}
    widths = domain.half_widths
    return {"low": (center - widths).tolist(), "high": (center + widths).tolist()}


def ask_peers(
    task: Task, records: Floats, variance: float, patience: float, add: Callable[..., None]
) -> None:
    """Run all peers, each variant in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.npy"
        np.save(path, records)
        processes: dict[str, Peer] = {}
        given_up: dict[str, str] = {}
        for method, epsilon, delta in task.asked:
            if method.name in given_up:
                add(method.name, epsilon, delta, None, given_up[method.name])
                continue
            peer = processes.setdefault(method.name, Peer(list(method.command), patience))
            request = Request(
                "kmeans",
                str(path),
                task.data.n_clusters,
                epsilon,
                delta,
                domain_as_json(task.data.domain),
                task.seed,
                {**method.options, "cluster_variance": variance},
            )
            try:
                answer = peer.ask(request)
            except PeerRefusal:
                continue
            except PeerError as error:
                if isinstance(error, PeerTimeoutError):
                    given_up[method.name] = f"failed: {error} under another budget"
                add(method.name, epsilon, delta, None, f"failed: {error}")
                continue
            spent = "" if answer.spends == 1 else f"spends {answer.spends:.2f} epsilon"
            note = "; ".join(filter(None, (spent, answer.version, answer.remark)))
            peak_mb = answer.peak_mb if task.seed == 0 else None
            says = answer.concerns, answer.expected
            add(
                method.name,
                epsilon,
                delta,
                Run(answer.centers, answer.seconds, note, peak_mb, *says),
            )
        for peer in processes.values():
            peer.close()
