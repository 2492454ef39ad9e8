"""A collector as tests need one: a store on SQLite or PostgreSQL, people, requests."""

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import privsketch as ps
from privsketch_studies.collector import Collector, Settings, Store, add_member, make_study

DESIGN = ps.Design.plan(
    n_components=2,
    domain=ps.Box(-1, 1, dim=2),
    n_features=16,
    budget=ps.Budget(1.0, 1e-6),
    random_state=0,
)
POSTGRESQL = Path("/usr/lib/postgresql/15/bin")
PATIENT = Settings(member_rate=1e6, member_burst=1e6, failure_rate=1e6, failure_burst=1e6)
_FILE = {"Content-Type": "application/octet-stream"}
_numbers = itertools.count()


def sketch_of(source, design=DESIGN, n_records=50):
    """A sketch of made-up records."""
    rng = np.random.default_rng(n_records)
    return ps.sketch(rng.uniform(-1, 1, (n_records, design.dim)), design, source=source)


class World:
    """A store with an owner, a study "heart" and two sites, and a client of its application."""

    def __init__(self, place, settings=PATIENT):
        self.store = Store(place)
        self.collector = Collector(self.store, settings)
        self.tokens = {"olga": add_member(self.store, "olga", makes_studies=True)}
        make_study(self.store, "heart", DESIGN.to_bytes(), owner="olga")
        for name in ("north", "south"):
            self.add(name, "site")
        self._client = None

    def add(self, name, *roles, study="heart", key=None):
        """A member with these roles, whose token is kept."""
        token = add_member(self.store, name, study=study, as_roles=roles, key=key)
        self.tokens[name] = token
        return token

    @property
    def client(self):
        if self._client is None:
            from starlette.testclient import TestClient

            from privsketch_studies.collector import make_app

            self._client = TestClient(make_app(self.collector), raise_server_exceptions=False)
        return self._client

    def ask(self, who, method, path, **more):
        """A request of a member."""
        headers = {**more.pop("headers", {})}
        if who is not None:
            headers["Authorization"] = f"Bearer {self.tokens.get(who, who)}"
        return self.client.request(method, f"/api/v1{path}", headers=headers, **more)

    def push(self, who, data, study="heart", headers=None):
        """Hand something in."""
        headers = {**_FILE, **(headers or {})}
        return self.ask(who, "POST", f"/studies/{study}/uploads", content=data, headers=headers)

    def total(self, who="olga", study="heart"):
        """The total of a study, a sketch."""
        answer = self.ask(who, "GET", f"/studies/{study}/total")
        assert answer.status_code == 200, answer.text
        return ps.Sketch.from_bytes(answer.content)


@contextmanager
def serving(place, settings=PATIENT):
    """The address of a server of a store, in a thread of this process."""
    import threading
    import time

    from privsketch_studies.collector import listen, make_server

    store = Store(place)
    server = make_server(Collector(store, settings))
    with listen("127.0.0.1", 0) as sock:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
            store.close()


@contextmanager
def postgresql():
    """The address of a server of its own, which is gone afterwards; None where there is none."""
    if not (POSTGRESQL / "initdb").exists():
        yield None
        return
    folder = Path(tempfile.mkdtemp(prefix="psk-pg-"))
    runs_as = {}
    if os.geteuid() == 0:  # the server refuses to run as root
        try:
            user = pwd.getpwnam("postgres")
        except KeyError:
            user = pwd.getpwnam("nobody")
        os.chown(folder, user.pw_uid, user.pw_gid)
        runs_as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def call(name, *arguments):
        subprocess.run(
            [POSTGRESQL / name, "-D", folder / "data", *arguments],
            check=True,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C.UTF-8"},
            **runs_as,
        )

    try:
        call("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        call("pg_ctl", "-w", "-o", options, "-l", folder / "log", "start")
        try:
            yield f"postgresql://postgres@/{{}}?host={folder}"
        finally:
            call("pg_ctl", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def fresh_database(address):
    """The address of a new, empty database of a server."""
    import psycopg

    name = f"test{next(_numbers)}"
    with psycopg.connect(address.format("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return address.format(name)
