"""Sessions of Spark: opened, asked for the outcomes of tasks, and silent while they run."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

from privsketch._base.errors import ParameterError, PrivsketchError, RecordError
from privsketch.sketching.engines.work import Progress, foreign_error

_TICK = 0.2  # seconds between two looks at whether somebody wants to stop


def collected(session: Any, rows: Any, tick: Progress | None) -> list[Any] | PrivsketchError:
    """Return outcomes of all parts, or the first error; cancel the job if anybody stops it here."""
    from pyspark import inheritable_thread_target

    tag = f"privsketch-{uuid4().hex}"

    context = session.sparkContext

    def collect() -> list[Any]:
        context.addJobTag(tag)
        try:
            with _silent_here():
                return rows.collect()  # type: ignore[no-any-return]
        finally:
            context.removeJobTag(tag)

    inherited = inheritable_thread_target(session)  # itself where threads share all of it
    with _silent(session), ThreadPoolExecutor(1) as pool:
        future = pool.submit(collect if inherited is session else inherited(collect))
        try:
            while not wait([future], timeout=_TICK).done:
                if tick is not None:
                    tick(0)
        except BaseException:
            with suppress(Exception):  # again, as it may not have begun yet
                context.cancelJobsWithTag(tag)
                while not wait([future], timeout=_TICK).done:
                    context.cancelJobsWithTag(tag)
            raise
        error = future.exception()
    if error is not None:
        if not isinstance(error, Exception):
            raise error
        return spark_error(error)
    outcomes, seen = [], set()
    for part, outcome in future.result():
        if part in seen:
            return RecordError(f"`engine='spark'`: part {part} came twice; nothing was released")
        seen.add(part)
        outcomes.append(pickle.loads(outcome))  # noqa: S301 - of a task of ours
    failures = [each for each in outcomes if isinstance(each, PrivsketchError)]
    return failures[0] if failures else outcomes


_LOGGER = "org.apache.spark"
_PYTHON_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
_silence = threading.Lock()
_silenced: dict[str, Any] = {"count": 0, "level": None}  # jobs, and what it was before them


@contextmanager
def _silent(session: Any) -> Iterator[None]:
    """Silence Spark's loggers in the driver: of a task that fails they quote all it said."""
    log4j = session.sparkContext._jvm.org.apache.logging.log4j
    configurator, context = log4j.core.config.Configurator, log4j.LogManager.getContext(False)
    with _silence:
        if _silenced["count"] == 0:
            own = context.getConfiguration().getLoggers().get(_LOGGER)
            _silenced["level"] = None if own is None else own.getLevel()
            configurator.setLevel(_LOGGER, log4j.Level.OFF)
        _silenced["count"] += 1
    try:
        yield
    finally:
        with _silence:
            _silenced["count"] -= 1
            if _silenced["count"] == 0 and _silenced["level"] is not None:
                configurator.setLevel(_LOGGER, _silenced["level"])
            elif _silenced["count"] == 0:  # a level of its own would say more than none
                context.getConfiguration().removeLogger(_LOGGER)
                context.updateLoggers()


@contextmanager
def _silent_here() -> Iterator[None]:
    """Silence Spark's loggers of Python in this thread: of a failed cast they quote the cell."""
    from pyspark.logger import PySparkLogger

    me = threading.get_ident()

    def is_other(record: Any) -> bool:
        return bool(record.thread != me)

    loggers = [PySparkLogger.getLogger(name) for name in _PYTHON_LOGGERS]
    for logger in loggers:
        logger.addFilter(is_other)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_other)


# What to say by words that Spark's error has in it; the error itself is not shown.
CAUSES = {
    "PYTHON_VERSION_MISMATCH": "workers have another version of Python than the driver; set "
    "PYSPARK_PYTHON before the session starts",
    "ModuleNotFoundError": "a worker cannot import what it needs: workers take python3 from the "
    "path unless PYSPARK_PYTHON is set before the session starts, and need the same versions of "
    "privsketch and its dependencies on all machines",
    "Cannot run program": "workers find no Python; set PYSPARK_PYTHON before the session starts",
    "maxResultSize": "sums of all parts are larger than spark.driver.maxResultSize; use fewer "
    "partitions or features",
    "exited unexpectedly": "workers died again and again, or once where Spark does not try again, "
    "as with a master like local[2]; perhaps a partition needs more memory than a worker has",
    "cancelled": "the job was cancelled",
}


def spark_error(error: Exception) -> PrivsketchError:
    """Return our error for one of Spark or of what makes a table, without its words."""
    text = str(error)
    for words, cause in CAUSES.items():
        if words in text:
            return RecordError(f"`engine='spark'`: {cause}. Nothing was released")
    return foreign_error("a task on a Spark worker", error)


def require_spark() -> None:
    """Refuse to go on without Spark."""
    try:
        import pandas  # type: ignore[import-untyped]
        import pyspark
    except ImportError:
        raise ParameterError(
            "`engine='spark'`: Spark or pandas is not installed; pip install 'privsketch[spark]', "
            "and Java 17 or newer"
        ) from None
    del pandas, pyspark


@contextmanager
def opened_session(given: Any) -> Iterator[Any]:
    """Give the session to read files with; one that is started here is stopped again."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if isinstance(given, SparkSession):
        yield given
        return
    if given is not None and not isinstance(given, str):
        raise ParameterError(
            f"session: got {type(given).__name__}; expected a SparkSession, or the master of a "
            "cluster like 'spark://host:7077'"
        )
    if SparkContext._active_spark_context is not None:
        active = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
        if given not in (None, active.sparkContext.master):
            raise ParameterError(
                f"there is a session of another master than {given!r}; stop it first"
            )
        yield active
        return
    # It would show numbers of records to whoever opens its page, and take interrupts for itself.
    builder = SparkSession.builder.appName("privsketch").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    if given is not None:
        builder = builder.master(given)
    python = os.environ.get("PYSPARK_PYTHON")
    if python is None and (given is None or given.startswith("local")):
        os.environ["PYSPARK_PYTHON"] = sys.executable  # or it would be python3 of the path
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT) if is_main else None
    session = None
    try:
        try:
            session = builder.getOrCreate()
        except Exception:
            session = None
        finally:
            if python is None:
                os.environ.pop("PYSPARK_PYTHON", None)
            if handler is not None:
                signal.signal(signal.SIGINT, handler)
        if session is None:
            raise ParameterError(
                "`engine='spark'`: Spark does not start; it needs Java 17 or newer (JAVA_HOME), "
                "and a master that answers"
            )
        yield session
    finally:
        if session is not None:
            session.stop()
