"""privsketch as another checkout has it: `PYTHONPATH=SRC python -m benchmarks.peers.checkout SRC`.

SRC is the folder that has that checkout's package. Only its public names are used, so that any
version can stand beside the one that is measured.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import privsketch as ps
from benchmarks.peers.protocol import Found, Request, serve

PACKAGE = Path(ps.__file__).resolve().parents[1]


def expected_ratio(model: Any) -> float | None:
    """Return the cost ratio that a model tells to expect: that of its sketch, else a forecast."""
    ratio = model.expected_ratio if model.cost_ratio is None else model.cost_ratio.estimate
    return None if ratio is None else float(ratio)


class Checkout:
    """The package that was imported, which must be that of a folder."""

    def __init__(self, source: Path) -> None:
        if source.resolve() != PACKAGE:
            raise SystemExit(f"privsketch was imported from {PACKAGE}, not from {source}")
        self.source = source

    @property
    def version(self) -> str:
        """Version of the package, and the commit if it is in a repository."""
        command = ["git", "-C", str(self.source), "rev-parse", "--short", "HEAD"]
        commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        return f"privsketch {ps.__version__} {commit}".strip()

    def warm_up(self) -> None:
        """Compile what is compiled on first use, so that no run's time has it."""
        records = np.random.default_rng(0).uniform(-1, 1, (500, 2))
        domain = {"low": [-1.0, -1.0], "high": [1.0, 1.0]}
        for method in ("sketch", "pipeline", "cells"):
            self.fit(records, Request("kmeans", "", 2, 1.0, 1e-6, domain, 0), method)

    def fit(self, records: np.ndarray, request: Request, method: str = "auto") -> Found:
        """Fit as `fitted` of benchmarks/compare/methods.py does."""
        told = request.domain
        if "radius" in told:
            domain: ps.Ball | ps.Box = ps.Ball(center=told["center"], radius=told["radius"])
        else:
            domain = ps.Box(told["low"], told["high"])
        fit = ps.PrivateKMeans(
            request.n_clusters,
            method=method,
            epsilon=request.epsilon,
            delta=request.delta,
            domain=domain,
            n_records=len(records),
            random_state=request.seed,
            n_threads=1,
        ).fit(records)
        expected = expected_ratio(fit.model_)
        note = f"chose {fit.method_}"
        return Found(fit.cluster_centers_, note, concerns=len(fit.concerns_), expected=expected)


if __name__ == "__main__":
    checkout = Checkout(Path(sys.argv[1]))
    checkout.warm_up()
    serve(checkout.version, {"kmeans": checkout.fit})
