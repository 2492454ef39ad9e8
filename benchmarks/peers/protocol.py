"""How another system is asked for centers: one JSON request a line, one JSON answer a line.

A peer is a command, with the interpreter and the packages it needs. It reads requests from its
input until that ends and writes an answer to each. The first request is {"task": "hello"}, and
its answer has the version. All others have

    task        "kmeans"; "pca": then `n_clusters` is the number of components; "logistic": then
                the last column of the records is 0 or 1 and not in the domain, and the answer has
                one row of `centers`, the coefficients and the intercept
    records     path of an .npy file, (n, dim)
    n_clusters, epsilon, delta
    domain      {"low": [...], "high": [...]} or {"center": [...], "radius": r}
    seed        an integer, other for every run
    options     of the peer; benchmarks/compare.py gives those of the variant it asks for,
                and "cluster_variance", which a peer may only use if its remark says so

An answer has `centers` (lists of numbers), `seconds`, `peak_mb` (memory beyond the records; null
if not known), `version`, `remark` (what a reader must know, or ""), and `spends`, the share of
the budget that is really spent (1 if it is kept). It may have `concerns`, the number of reasons
that the peer itself gives to doubt its centers, and `expected`, the cost ratio that it tells to
expect. {"refuses": why} is the answer to what a peer cannot do, {"error": what} to what went wrong.
In Python `serve` does all of this.

This file needs NumPy only: it runs in a peer's environment as well as in ours.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

HELLO = {"task": "hello"}
PATIENCE = 60.0  # seconds until a peer that does not answer is given up


class PeerError(RuntimeError):
    """A peer failed, or did not answer."""


class PeerTimeoutError(PeerError):
    """A peer did not answer in time."""


class PeerRefusal(Exception):  # noqa: N818 - no error: some cells are not for every peer
    """A peer cannot do what it was asked for."""


@dataclass(frozen=True)
class Request:
    """What a peer is asked for."""

    task: str
    records: str
    n_clusters: int
    epsilon: float
    delta: float
    domain: dict[str, Any]
    seed: int
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Corners of the box, or of the box around the ball."""
        if "low" in self.domain:
            return np.asarray(self.domain["low"]), np.asarray(self.domain["high"])
        center, radius = self.ball
        return center - radius, center + radius

    @property
    def ball(self) -> tuple[np.ndarray, float]:
        """Center and radius of the ball, or of the ball around the box."""
        if "radius" in self.domain:
            return np.asarray(self.domain["center"]), float(self.domain["radius"])
        low, high = self.bounds
        return (low + high) / 2, float(np.linalg.norm(high - low)) / 2


@dataclass(frozen=True)
class Found:
    """What a fit returns to `serve`."""

    centers: np.ndarray
    remark: str = ""
    spends: float = 1.0
    concerns: int | None = None
    expected: float | None = None


@dataclass(frozen=True)
class Answer:
    """What a peer answered."""

    centers: np.ndarray
    seconds: float
    version: str
    peak_mb: float | None = None
    remark: str = ""
    spends: float = 1.0
    concerns: int | None = None
    expected: float | None = None


Fit = Callable[[np.ndarray, Request], Found]


def peak() -> float:
    """Largest memory of this process so far, in MB."""
    # Not getrusage: what it reports includes the parent's memory at the time of the fork.
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def serve(version: str, fits: dict[str, Fit]) -> None:
    """Answer requests until the input ends."""
    # What a peer prints must not end up between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    first = True
    for line in sys.stdin:
        told = json.loads(line)
        if told == HELLO:
            answer: dict[str, Any] = {"version": version}
        else:
            answer = _answered(Request(**told), fits)
            answer["version"] = version
            if "peak_mb" in answer:
                # A peak is only a run's own in a process that had none before.
                answer["peak_mb"], first = answer["peak_mb"] if first else None, False
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _answered(request: Request, fits: dict[str, Fit]) -> dict[str, Any]:
    if request.task not in fits:
        return {"refuses": f"no {request.task}"}
    records = np.load(request.records)
    before, start = peak(), time.perf_counter()
    try:
        found = fits[request.task](records, request)
    except PeerRefusal as refusal:
        return {"refuses": str(refusal)}
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}
    return {
        "centers": np.asarray(found.centers, dtype=np.float64).tolist(),
        "seconds": time.perf_counter() - start,
        "peak_mb": peak() - before,
        "remark": found.remark,
        "spends": float(found.spends),
        "concerns": found.concerns,
        "expected": found.expected,
    }


class Peer:
    """A peer's process; started by the first request, and again after it died."""

    def __init__(self, command: list[str], patience: float = PATIENCE) -> None:
        self.command = command
        self.patience = patience
        self._process: subprocess.Popen[bytes] | None = None
        self._complaints: BinaryIO | None = None

    def version(self) -> str:
        """Version of the system, or PeerError if it cannot be started."""
        return str(self._exchange(HELLO)["version"])

    def ask(self, request: Request) -> Answer:
        """Return the answer; raise PeerRefusal or PeerError if there is none."""
        told = self._exchange(asdict(request))
        if "refuses" in told:
            raise PeerRefusal(told["refuses"])
        if "error" in told:
            raise PeerError(told["error"])
        try:
            centers = np.asarray(told["centers"], dtype=np.float64)
            told = {name: told.get(name) for name in Answer.__dataclass_fields__}
            answer = Answer(**{**told, "centers": centers, "remark": told["remark"] or ""})
        except (KeyError, TypeError, ValueError) as error:
            raise PeerError(f"an answer that does not follow the protocol: {error}") from None
        if centers.ndim != 2 or not np.isfinite(centers).all() or not answer.spends:
            raise PeerError("centers that are no table of finite numbers, or no `spends`")
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
        if self._complaints is not None:
            self._complaints.close()
            self._complaints = None

    def _exchange(self, told: dict[str, Any]) -> dict[str, Any]:
        process = self._process or self._started()
        if process.stdin is None or process.stdout is None:
            raise PeerError("no pipes to the process")
        try:
            process.stdin.write(json.dumps(told).encode() + b"\n")
            process.stdin.flush()
            ready = select.select([process.stdout], [], [], self.patience)[0]
            line = process.stdout.readline() if ready else None
        except OSError:
            line = b""
        if line is None:
            self.close()
            raise PeerTimeoutError(f"no answer in {self.patience:g} s")
        if not line:
            complaint = self._last_complaint()
            self.close()
            raise PeerError(f"the process ended: {complaint}")
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            self.close()
            raise PeerError(f"no JSON object: {line[:80]!r}")
        return answer

    def _started(self) -> subprocess.Popen[bytes]:
        # So that peers find this module from wherever they are run.
        paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
        path = os.pathsep.join(filter(None, paths))
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        try:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
                env={**os.environ, "PYTHONPATH": path, **threads},
                bufsize=0,
            )
        except OSError as error:
            self.close()
            raise PeerError(f"cannot be started: {error}") from None
        return self._process

    def _last_complaint(self) -> str:
        if self._process is not None:
            self._process.wait(timeout=5)
        if self._complaints is None:
            return ""
        self._complaints.seek(0)
        lines = self._complaints.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"
