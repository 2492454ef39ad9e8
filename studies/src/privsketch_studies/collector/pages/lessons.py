"""Lessons: what is learned on the server, one at a time, in a process that can be stopped.

An answer is kept by what it was learned from and by what was asked, so that the same question is
answered once. Learning costs nothing of a budget, but time: there are limits on how long it may
take, how large sketches are, and how many questions wait.
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

TASKS = ("kmeans", "gaussian-mixture", "pca")
COMPARE = "compare"
MAX_NUMBER = 40  # of clusters or components
MAX_AT_ONCE = 8  # questions of one form
_MAX_KEPT = 64  # answers in memory
_MAX_WAITING = 24
_MAX_OF_STUDY = 10  # of these, so that one study does not keep others waiting
_MAX_BYTES = 64 * 1024 * 1024  # of the sketches of a question
_SECONDS = 300.0
_COMMAND = (sys.executable, "-P", "-m", "privsketch_studies.collector.pages.learner")


@dataclass(frozen=True)
class Question:
    """What to learn, of which study, from which uploads (their digests, in order)."""

    study: str
    parts: tuple[str, ...]
    task: str
    number: int | str | None = None


@dataclass(frozen=True)
class Lesson:
    """How far the answer to a question is: "waiting", "running", "done" or "failed"."""

    state: str
    answer: dict[str, Any] | None = None
    error: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to wait for."""
        return self.state in ("done", "failed")


class Lessons:
    """Questions and their answers, with one thread that works on them."""

    def __init__(self, seconds: float = _SECONDS, command: Sequence[str] = _COMMAND) -> None:
        self._seconds, self._command = seconds, tuple(command)
        self._kept: OrderedDict[Question, Lesson] = OrderedDict()
        self._waiting: deque[tuple[Question, str, list[bytes]]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        atexit.register(self.close)

    def look(self, question: Question) -> Lesson | None:
        """How far an answer is; None if nobody has asked, or it was forgotten."""
        with self._lock:
            found = self._kept.get(question)
            if found is not None:
                self._kept.move_to_end(question)
            return found

    def answers(self, study: str, parts: tuple[str, ...]) -> list[tuple[Question, Lesson]]:
        """All that was asked about a total."""
        with self._lock:
            about = [pair for pair in self._kept.items() if pair[0].study == study]
        return [pair for pair in about if pair[0].parts == parts and pair[0].task != COMPARE]

    def ask(self, question: Question, title: str, sketches: Sequence[bytes]) -> None:
        """Have a question answered; one that was, or waits, is not asked again."""
        if sum(map(len, sketches)) > _MAX_BYTES:
            raise CollectorError("too large to learn from here; pull the total instead", "size")
        with self._lock:
            known = self._kept.get(question)
            if self._is_closed or (known is not None and known.state != "failed"):
                return
            own = sum(one.study == question.study for one, _, _ in self._waiting)
            if len(self._waiting) >= _MAX_WAITING or own >= _MAX_OF_STUDY:
                raise CollectorError("many models wait to be learned; come again later", "often")
            self._kept[question] = Lesson("waiting")
            self._waiting.append((question, title, list(sketches)))
            over = [known for known, lesson in self._kept.items() if lesson.is_over]
            for one in over[: max(len(self._kept) - _MAX_KEPT, 0)]:
                del self._kept[one]
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Stop what is at work, and take nothing more."""
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
                question, title, sketches = self._waiting.popleft()
                self._kept[question] = Lesson("running")
            lesson = self._learned(question, title, sketches)
            with self._lock:
                self._kept[question] = lesson
                self._kept.move_to_end(question)

    def _learned(self, question: Question, title: str, sketches: list[bytes]) -> Lesson:
        asked = {"task": question.task, "number": question.number, "title": title}
        line = json.dumps({**asked, "lengths": [len(one) for one in sketches]}) + "\n"
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
                return Lesson("failed", error=f"it took longer than {self._seconds:g} seconds")
            finally:
                with self._lock:
                    self._process = None
            told = json.loads(output)
        except (OSError, ValueError):
            LOGGER.error("a lesson failed")
            return Lesson("failed", error="learning failed; pull the total and learn from it")
        if "error" in told:
            return Lesson("failed", error=told["error"])
        return Lesson("done", answer=told)
