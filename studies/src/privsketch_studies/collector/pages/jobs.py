"""Learning jobs: models are learned on the server, one at a time, in a process that can be stopped.

Results are kept by what they were learned from and by the request, so that the same request is
computed once. Learning spends no budget, but it takes time: there are limits on the time of a job,
the size of its sketches, and the number of jobs that wait.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from privsketch_studies.collector.web.limits import LOGGER
from privsketch_studies.errors import CollectorError

TASKS = ("kmeans", "gaussian-mixture", "pca", "regression", "summary")
COLUMN_TASKS = ("regression", "summary")  # their number is the place of a column, from 1
COMPARE = "compare"
MAX_NUMBER = 40  # of clusters or components
MAX_AT_ONCE = 8  # jobs of one form
_MAX_JOBS = 64  # in memory
_MAX_WAITING = 24
_MAX_OF_STUDY = 10  # of the waiting ones, so that one study does not delay all others
_MAX_BYTES = 64 * 1024 * 1024  # of the sketches of a job
_JOB_SECONDS = 300.0
_COMMAND = (sys.executable, "-P", "-m", "privsketch_studies.collector.pages.learner")


@dataclass(frozen=True)
class JobRequest:
    """What to learn, in which study, from which uploads (their digests, in order).

    `number` is that of components. Of a regression it is the place of the target among the columns,
    from 1, and of a summary that of the column with the groups.
    """

    study: str
    parts: tuple[str, ...]
    task: str
    number: int | str | None = None


@dataclass(frozen=True)
class LearningJob:
    """State of a job ("waiting", "running", "done" or "failed") with its answer or its error."""

    state: str
    answer: dict[str, Any] | None = None
    error: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether the job is done or has failed."""
        return self.state in ("done", "failed")


class JobQueue:
    """Learning jobs by their requests, and one thread that runs them in turn.

    Parameters
    ----------
    seconds : float
        Time limit of a job.
    command : sequence of str
        Command of the process that learns.
    """

    def __init__(self, seconds: float = _JOB_SECONDS, command: Sequence[str] = _COMMAND) -> None:
        self._seconds, self._command = seconds, tuple(command)
        self._jobs: OrderedDict[JobRequest, LearningJob] = OrderedDict()
        self._waiting: deque[tuple[JobRequest, str, list[bytes]]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        atexit.register(self.close)

    def find(self, request: JobRequest) -> LearningJob | None:
        """Return the job of a request; None if it was never submitted, or was dropped."""
        with self._lock:
            job = self._jobs.get(request)
            if job is not None:
                self._jobs.move_to_end(request)
            return job

    def of_total(self, study: str, parts: tuple[str, ...]) -> list[tuple[JobRequest, LearningJob]]:
        """Return all jobs that learn from a total."""
        with self._lock:
            pairs = list(self._jobs.items())
        return [
            (request, job)
            for request, job in pairs
            if (request.study, request.parts) == (study, parts) and request.task != COMPARE
        ]

    @staticmethod
    def require_size(n_bytes: int) -> None:
        """Refuse sketches that are too large for a job."""
        if n_bytes > _MAX_BYTES:
            raise CollectorError("too large to learn from here; pull the total instead", "size")

    def submit(self, request: JobRequest, title: str, sketches: Sequence[bytes]) -> None:
        """Add a job to the queue, unless the same request waits, runs or is done."""
        self.require_size(sum(map(len, sketches)))
        with self._lock:
            earlier = self._jobs.get(request)
            if self._is_closed or (earlier is not None and earlier.state != "failed"):
                return
            n_own = sum(waiting.study == request.study for waiting, _, _ in self._waiting)
            if len(self._waiting) >= _MAX_WAITING or n_own >= _MAX_OF_STUDY:
                raise CollectorError("many models wait to be learned; try again later", "often")
            self._jobs[request] = LearningJob("waiting")
            self._waiting.append((request, title, list(sketches)))
            finished = [key for key, job in self._jobs.items() if job.is_over]
            for key in finished[: max(len(self._jobs) - _MAX_JOBS, 0)]:
                del self._jobs[key]
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Stop the running job and accept no more jobs."""
        with self._lock:
            self._is_closed = True
            self._waiting.clear()
            if self._process is not None:
                self._process.kill()
        atexit.unregister(self.close)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                request, title, sketches = self._waiting.popleft()
                self._jobs[request] = LearningJob("running")
            job = self._run(request, title, sketches)
            with self._lock:
                self._jobs[request] = job
                self._jobs.move_to_end(request)

    def _run(self, request: JobRequest, title: str, sketches: list[bytes]) -> LearningJob:
        """Run a job in a process of its own and return it with its answer or its error."""
        head = {"task": request.task, "number": request.number, "title": title}
        line = json.dumps({**head, "lengths": [len(sketch) for sketch in sketches]}) + "\n"
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        environment.pop("PRIVSKETCH_STORE", None)
        try:
            process = subprocess.Popen(  # noqa: S603 (this program, with arguments of its own)
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
            with self._lock:
                self._process = process
                if self._is_closed:
                    process.kill()
            try:
                output, _ = process.communicate(
                    line.encode("ascii") + b"".join(sketches), timeout=self._seconds
                )
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                return LearningJob("failed", error=f"it took longer than {self._seconds:g} seconds")
            finally:
                with self._lock:
                    self._process = None
            answer = json.loads(output)
        except (OSError, ValueError):
            LOGGER.error("a learning job failed")
            error = "learning failed; pull the total and learn from it"
            return LearningJob("failed", error=error)
        if "error" in answer:
            return LearningJob("failed", error=answer["error"])
        return LearningJob("done", answer=answer)
