"""What is compared: our methods, baselines of others that we ship, and peers.

All see the same public facts: domain, number of clusters, a number of records. What a method of
the package charges is checked against the budget of its cell; what a peer really spends is what
its adapter says.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import privsketch as ps
from benchmarks.datasets import DataSet
from benchmarks.peers.checkout import expected_ratio
from benchmarks.peers.protocol import Peer, PeerError
from benchmarks.regret.limits import LIMITS
from privsketch._base.types import Floats
from privsketch.clustering.baselines import lloyd
from privsketch.clustering.run import clustered
from privsketch.facts.budget import exact
from privsketch.facts.receipt import Receipt

OURS = ("auto", "pipeline", "sketch", "cells")
LAPLACE, UNIFORM = "lloyd laplace", "lloyd uniform"
BASELINES = ("partition-tree", "lloyd", "grid", "sample-aggregate", "k-variates", LAPLACE, UNIFORM)
MAX_SKETCHED = 100  # columns: from here on a sketch has no directions to look along


@dataclass(frozen=True)
class Run:
    """Centers of one run, what they took, and what the model says of itself: benchmarks/limits.py.

    `concerns` is their number, `expected` the cost ratio that the model tells to expect.
    """

    centers: Floats
    seconds: float
    note: str = ""
    peak_mb: float | None = None
    concerns: int | None = None
    expected: float | None = None


def kind_of(method: str) -> str:
    """Whose method it is."""
    if method in OURS:
        return "ours"
    if method in LIMITS:
        return "limit"
    return "baseline" if method in BASELINES else "peer"


def serves(method: str, delta: float, dim: int) -> bool:
    """Whether a method of the package is run in a cell at all."""
    if method == LAPLACE:
        return delta == 0
    return method != "sketch" or dim < MAX_SKETCHED


def fitted(
    method: str, data: DataSet, records: Floats, epsilon: float, delta: float, seed: int
) -> Run:
    """One run of a method of the package, or of its limits, on one thread."""
    budget = ps.Budget(epsilon, delta)
    options: dict[str, Any] = {"n_threads": 1, "n_records": len(records), "random_state": seed}
    start = time.perf_counter()
    if method in LIMITS:
        centers = LIMITS[method](records, data, epsilon, delta, seed)
        return Run(centers, time.perf_counter() - start)
    if method == UNIFORM:
        model = clustered(
            lloyd.cluster,
            records,
            data.n_clusters,
            domain=data.domain,
            budget=budget,
            start="uniform",
            **options,
        )
        require_within(model.receipt, budget)
        return Run(model.centers, time.perf_counter() - start)
    if method == LAPLACE:
        options["options"] = {"noise": "laplace"}
    fit = ps.PrivateKMeans(
        data.n_clusters,
        method="lloyd" if method == LAPLACE else method,
        epsilon=epsilon,
        delta=delta,
        domain=data.domain,
        **options,
    ).fit(records)
    seconds = time.perf_counter() - start
    require_within(fit.receipt_, budget)
    note = f"chose {fit.method_}" if method == "auto" else ""
    expected = expected_ratio(fit.model_)
    return Run(fit.cluster_centers_, seconds, note, concerns=len(fit.concerns_), expected=expected)


def require_within(receipt: Receipt, budget: ps.Budget) -> None:
    """RuntimeError if more was charged than the cell allows."""
    too_much = exact(receipt.epsilon) > exact(budget.epsilon)
    if too_much or exact(receipt.delta) > exact(budget.delta):
        raise RuntimeError(
            f"a receipt of ({receipt.epsilon}, {receipt.delta}) in a cell of "
            f"({budget.epsilon}, {budget.delta})"
        )


@dataclass(frozen=True)
class PeerMethod:
    """A peer, asked in one of its ways."""

    name: str
    command: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)


# Ways in which a peer is asked; others are asked in one way, under their own name.
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "diffprivlib": {
        "diffprivlib as stated": {},
        "diffprivlib corrected": {"corrected": True},
    },
}
BUILT_IN = ("diffprivlib", "pycle", "google")


def peer_methods(python: Path, given: dict[str, list[str]], tell: Callable[[str], None]) -> Any:
    """Peers that answer, in all their ways; what is left out is told."""
    commands = {name: [str(python), "-m", f"benchmarks.peers.{name}"] for name in BUILT_IN}
    found = []
    for name, command in {**commands, **given}.items():
        peer = Peer(command)
        try:
            tell(f"{name}: {peer.version()}")
        except (PeerError, KeyError) as error:
            tell(f"{name} is left out: {error}")
            continue
        finally:
            peer.close()
        for variant, options in VARIANTS.get(name, {name: {}}).items():
            found.append(PeerMethod(variant, tuple(command), options))
    return found
