"""Interrupts at random moments: no file is left behind, and one sentence says what was spent.

    python -m benchmarks interruptions            200 interrupts of each command
    python -m benchmarks interruptions 20

Commands run as a person runs them, in a process group of their own, which gets SIGINT at a moment
that is uniform over the time until the result of an undisturbed run has its name, but for the first
tenth of a second, in which Python itself starts and nobody could say anything. A run that ends well
all the same was faster, or got its interrupt when its result was on the way to its name: it must
say so, and the file is whole.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np

import privsketch as ps
from privsketch.models.clusters import ClusterModel

PRIVSKETCH = str(Path(sys.executable).parent / "privsketch")
SENTENCES = ("nothing was spent", "the budget counts as spent")
STARTING = 0.1  # seconds
FACTS = ["-k", "3", "--box", "-4", "4", "--epsilon", "1", "--delta", "1e-6"]


def make_files(folder: Path) -> None:
    """Write a table that takes a second or two to read, and a design for it."""
    rng = np.random.default_rng(0)
    np.savetxt(folder / "data.csv", rng.normal(size=(200_000, 3)), delimiter=",", fmt="%.6f")
    ps.Design.plan(
        n_components=3,
        domain=ps.Box(-4, 4, dim=3),
        budget=ps.Budget(1.0, 1e-6),
        n_records=200_000,
        n_features=2000,
        random_state=0,
    ).save(folder / "study.json")


def commands(folder: Path) -> dict[str, list[str]]:
    """Whole command lines but for the output."""
    data = [str(folder / "data.csv"), "--no-header"]
    study = str(folder / "study.json")
    cluster = ["cluster", *data, *FACTS, "--records", "2e5", "--method", "pipeline"]
    return {
        "sketch": ["sketch", study, *data],
        "sketch --engine pool": ["sketch", study, *data, "--engine", "pool"],
        "cluster": cluster,
        "cluster --report": [*cluster, "--report", "report.html"],
    }


def run(command: list[str], folder: Path, after: float) -> tuple[int, str, list[str]]:
    """Exit code, what was said on stderr, and names of files that are there afterwards."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        process = subprocess.Popen(
            [PRIVSKETCH, *command, "-o", "out"],
            cwd=place,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        time.sleep(after)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        said = process.communicate()[1]
        names = sorted(path.name for path in Path(place).iterdir())
        if "out" in names:  # whole, or an error here
            is_sketch = command[0] == "sketch"
            (ps.Sketch if is_sketch else ClusterModel).load(Path(place) / "out")
    return process.returncode, said, names


def seconds_to_name(command: list[str], folder: Path) -> float:
    """How long an undisturbed run takes until its output has its name: the least of three."""
    found = []
    for _ in range(3):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            start = time.perf_counter()
            line = [PRIVSKETCH, *command, "-o", "out"]
            process = subprocess.Popen(line, cwd=place, stdout=subprocess.DEVNULL)
            while process.poll() is None and not (Path(place) / "out").exists():
                time.sleep(0.002)
            found.append(time.perf_counter() - start)
            process.wait()
    return min(found)


def main() -> None:
    """Interrupt and count."""
    n_times = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    rng = np.random.default_rng()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_files(folder)
        for title, command in commands(folder).items():
            seconds = seconds_to_name(command, folder)
            seen: Counter[str] = Counter()
            for _ in range(n_times):
                moment = rng.uniform(STARTING, seconds)
                code, said, names = run(command, folder, moment)
                told = sum(said.count(sentence) for sentence in SENTENCES)
                if code == 0:
                    seen["ended well, file whole"] += "out" in names and told == 0
                    continue
                seen["stopped"] += 1
                seen["left a file"] += bool(names)
                seen["foreign words"] += "Traceback" in said or "Exception" in said
                seen["one sentence"] += told == 1
                if told != 1 or names or "Traceback" in said:
                    print(f"  at {moment:.3f} s: exit {code}, files {names}\n{said}")
            counts = ", ".join(f"{key} {value}" for key, value in seen.items())
            print(f"{title}: {seconds:.1f} s to the result; of {n_times} interrupts: {counts}")


if __name__ == "__main__":
    main()
