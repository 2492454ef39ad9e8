"""A collector under load, and killed at random moments: what is lost, doubled, and how fast.

`python -m benchmarks collector` hands in sketches by several clients at a time; with `--kills` it
ends the server with SIGKILL at random moments while they do, and looks for every upload that was
acknowledged. `--store` takes the address of an empty PostgreSQL instead of a file.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import privsketch as ps

N_SITES = 100  # of a study
RATE = "1e9"


def made_design(n_bytes: int) -> ps.Design:
    """One whose sketches have about that many bytes."""
    return ps.Design.plan(
        n_components=4,
        domain=ps.Box(-1, 1, dim=4),
        budget=ps.Budget(1.0, 1e-6),
        n_features=(n_bytes - 2000) // 16,
        random_state=0,
    )


def prepared(place: str, design: ps.Design, n_uploads: int) -> list[tuple[str, str, str]]:
    """Fill a new store; return study, source and token of each possible upload."""
    from privsketch_studies.collector.events import GAVE_ROLES, add_event
    from privsketch_studies.collector.members import add_member
    from privsketch_studies.collector.store.engine import Store
    from privsketch_studies.collector.store.tables import roles
    from privsketch_studies.collector.studies import make_study

    store = Store(place)
    tokens = {name: add_member(store, name) for name in (f"site {n:03}" for n in range(N_SITES))}
    places = []
    for number in range(-(-n_uploads // N_SITES)):
        study = f"study-{number}"
        make_study(store, study, design.to_bytes(), owner="site 000")
        with store.writing() as connection:
            connection.execute(
                roles.insert(),
                [{"study": study, "member": name, "role": "site"} for name in tokens],
            )
            for name in tokens:
                add_event(connection, study, None, GAVE_ROLES, member=name, roles=["site"])
        places += [(study, name, token) for name, token in tokens.items()]
    store.close()
    return places[:n_uploads]


def copied(sketch: ps.Sketch, source: str, number: int) -> bytes:
    """Return a sketch of another source with small noise added, so that no two are equal."""
    rng = np.random.default_rng(number)
    values = sketch.values + rng.integers(-3, 4, len(sketch.values))
    receipt = replace(sketch.receipt, source=source)
    name = hashlib.sha256(str(number).encode()).hexdigest()[:32]
    return replace(
        sketch, values=values, ids=(name,), sources=(source,), receipt=receipt
    ).to_bytes()


class Server:
    """`privsketch collector serve` in a process of its own."""

    def __init__(self, place: str) -> None:
        began = time.perf_counter()
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "privsketch",
                "collector",
                "serve",
                "--port",
                "0",
                "--member-rate",
                RATE,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PRIVSKETCH_STORE": place},
        )
        line = self._process.stdout.readline() if self._process.stdout else ""
        self.port = int(line.split(",")[0].rpartition(":")[2])
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", "/health")
        if connection.getresponse().status != 200:
            raise SystemExit("the collector is not well")
        self.seconds = time.perf_counter() - began

    def end(self, number: int = signal.SIGTERM) -> None:
        """Send it a signal, and wait."""
        self._process.send_signal(number)
        self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()


def push(connection: http.client.HTTPConnection, study: str, token: str, data: bytes) -> int:
    """Upload a sketch; return the HTTP status."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/octet-stream"}
    connection.request("POST", f"/api/v1/studies/{study}/uploads", body=data, headers=headers)
    answer = connection.getresponse()
    answer.read()
    return answer.status


def client(port: int, work: list[tuple[str, str, bytes]]) -> list[tuple[str, int, float]]:
    """Hand in everything, one after the other: digest, status and seconds of each."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    done = []
    for study, token, data in work:
        began = time.perf_counter()
        status = push(connection, study, token, data)
        done.append((hashlib.sha256(data).hexdigest(), status, time.perf_counter() - began))
    return done


def kept_digests(place: str) -> list[str]:
    """Digests of all uploads; an error unless all chains are whole."""
    from sqlalchemy import select

    from privsketch_studies.collector.store.engine import Store
    from privsketch_studies.collector.store.tables import uploads
    from privsketch_studies.collector.verify import verify_store

    store = Store(place)
    verify_store(store)
    with store.reading() as connection:
        found = [str(one) for one in connection.execute(select(uploads.c.digest)).scalars()]
    store.close()
    return found


def run_load(place: str, n_uploads: int, n_clients: int, n_bytes: int) -> dict[str, Any]:
    """Measure uploads by several clients at a time."""
    design = made_design(n_bytes)
    places = prepared(place, design, n_uploads)
    first = ps.sketch(np.zeros((1000, 4)), design, source="first")
    work = [
        (study, token, copied(first, name, number))
        for number, (study, name, token) in enumerate(places)
    ]
    server = Server(place)
    began = time.perf_counter()
    with get_context("fork").Pool(n_clients) as pool:
        parts = [(server.port, work[n::n_clients]) for n in range(n_clients)]
        done = [one for part in pool.starmap(client, parts) for one in part]
    seconds = time.perf_counter() - began
    server.end()
    kept = kept_digests(place)
    times = np.array([one[2] for one in done])
    return {
        "uploads": n_uploads,
        "bytes": len(work[0][2]),
        "clients": n_clients,
        "lost": len({digest for digest, status, _ in done if status == 201} - set(kept)),
        "doubled": len(kept) - len(set(kept)),
        "refused": sum(status != 201 for _, status, _ in done),
        "per_second": round(n_uploads / seconds, 1),
        "p50_ms": round(1000 * float(np.quantile(times, 0.5)), 1),
        "p99_ms": round(1000 * float(np.quantile(times, 0.99)), 1),
    }


def run_kills(place: str, n_kills: int, n_clients: int, n_bytes: int) -> dict[str, Any]:
    """Kill the server at random moments while clients upload, and count what was lost."""
    design = made_design(n_bytes)
    places = prepared(place, design, 200 * n_kills)
    first = ps.sketch(np.zeros((1000, 4)), design, source="first")
    waiting = list(enumerate(places))
    acknowledged: set[str] = set()
    starts: list[float] = []
    lock, rng = threading.Lock(), random.Random(0)
    lost = doubled = again = 0

    def work(port: int) -> None:
        nonlocal again
        connection = http.client.HTTPConnection("127.0.0.1", port)
        while True:
            with lock:
                number, (study, name, token) = waiting.pop(0)
            data = copied(first, name, number)
            try:
                status = push(connection, study, token, data)
            except (OSError, http.client.HTTPException):
                with lock:  # not answered: it may be there, and is handed in again
                    waiting.insert(0, (number, (study, name, token)))
                return
            if status not in (200, 201):
                raise SystemExit(f"status {status}")
            with lock:
                again += status == 200
                acknowledged.add(hashlib.sha256(data).hexdigest())

    for _ in range(n_kills):
        server = Server(place)
        starts.append(server.seconds)
        threads = [threading.Thread(target=work, args=(server.port,)) for _ in range(n_clients)]
        for thread in threads:
            thread.start()
        time.sleep(rng.uniform(0.05, 1.0))
        server.end(signal.SIGKILL)
        for thread in threads:
            thread.join()
        kept = kept_digests(place)
        lost += len(acknowledged - set(kept))
        doubled += len(kept) - len(set(kept))
    return {
        "kills": n_kills,
        "acknowledged": len(acknowledged),
        "lost": lost,
        "doubled": doubled,
        "kept_but_not_answered": again,
        "restart_s": {"median": round(float(np.median(starts)), 2), "max": round(max(starts), 2)},
    }


def main() -> None:
    """Both, or one of them, as one JSON object a line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--uploads", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--bytes", type=int, default=32_000)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--store", help="address of an empty PostgreSQL")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = given.store or str(Path(folder) / "collector.db")
        if given.kills:
            print(json.dumps(run_kills(place, given.kills, given.clients, given.bytes)))
        else:
            print(json.dumps(run_load(place, given.uploads, given.clients, given.bytes)))


if __name__ == "__main__":
    main()
