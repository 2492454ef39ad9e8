"""`privsketch schema edit`: a page for one person, on this machine, for as long as they edit."""

import http.client
import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

import privsketch as ps
from privsketch.cli.schema.editing import way_to
from privsketch.facts import guesses_in
from privsketch.pages import POLICY
from tests.commands import DATA, INTEGRITY, contents, refused, succeeded
from tests.html_page import Page
from tests.schema_visitor import Visitor

SCHEMA = ps.Schema([ps.Number("age", 18, 100), ps.Flag("smoker")], missing="drop")
TEXTS = {
    "0.kind": "number", "0.number.low": "20", "0.number.high": "90", "1.kind": "flag",
    "missing": "drop", "unreadable": "error", "missing_person": "error",
}  # fmt: skip


def save(visitor, **options):
    """Send the form with these texts, and with those options of a visitor."""
    known = {name: options.pop(name) for name in ("token", "save", "headers") if name in options}
    return visitor.save(texts={**TEXTS, **options}, **known)


@contextmanager
def editing(path, *options):
    """Start the command, and yield its process and a visitor who knows the address."""
    command = [sys.executable, "-m", "privsketch.cli.main", "schema", "edit", str(path)]
    process = subprocess.Popen(
        [*command, "--no-browser", *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        said = process.stderr.readline()
        assert said.startswith("page ")
        yield process, Visitor(said.split()[1])
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)


@pytest.fixture
def file(folder):
    content = SCHEMA.to_json()
    content["columns"][0]["guessed"] = ["low"]
    (folder / "s.json").write_text(json.dumps(content))
    return folder / "s.json"


def test_a_whole_visit(file):
    """In, an error beside its field, out: the file is there, and the command has ended."""
    before = file.read_bytes()
    with editing(file) as (process, visitor):
        page = visitor.enter()
        assert "age" in Page(page.text).text
        assert page.getheader("Content-Security-Policy") == POLICY
        assert "script" not in page.text
        assert not re.search(r'(src|href)="(?!data:)', page.text)
        assert page.getheader("Cache-Control") == "no-store"
        assert page.getheader("X-Content-Type-Options") == "nosniff"
        assert "HttpOnly" in visitor.set_cookie
        assert f"Path={visitor.path}" in visitor.set_cookie
        wrong = save(visitor, **{"0.number.low": "91"})
        assert wrong.status == 422
        assert "is not below" in wrong.text
        assert file.read_bytes() == before
        assert visitor.ask().status == 200  # a page may be loaded again
        saved = save(visitor)
        assert saved.status == 200
        out, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "written to" in out
    assert "Traceback" not in err
    found = ps.Schema.load(file)
    assert (found.columns[0].low, found.columns[0].high) == (20, 90)
    assert [path.name for path in file.parent.iterdir()] == ["s.json"]


def test_marks_may_stay(file):
    with editing(file, "--json") as (process, visitor):
        visitor.enter()
        save(visitor, save="keep", **{"0.number.low": "18"})
        out, _ = process.communicate(timeout=20)
    assert json.loads(out)["left"] == ["age"]
    with pytest.raises(ps.PrivsketchError, match="guess"):
        ps.Schema.load(file)


def test_nobody_else_comes_in(file):
    """One server, all guards: what each of these lacks is one thing alone."""
    before = file.read_bytes()
    with editing(file) as (process, visitor):
        other = Visitor(f"http://{visitor.host}/")
        assert other.ask().status == 403
        assert other.ask(path="/favicon.ico").status == 403
        assert visitor.ask(path=visitor.path[:-1]).status == 403
        assert visitor.ask(path=visitor.path + "?").status == 403
        code = visitor.path
        for host in ("evil.example", "localhost:" + visitor.host.split(":")[1], None,
                     visitor.host.split(":")[0]):  # fmt: skip
            assert visitor.ask(Host=host).status == 403, host
        visitor.enter()
        assert visitor.ask(path=code).status == 403  # it works once
        assert visitor.ask(Cookie=None).status == 403
        assert visitor.ask(Cookie="session=" + "x" * 43).status == 403
        assert visitor.ask(Cookie="session=\u00e9; ;=").status == 403
        assert visitor.ask(Host="evil.example").status == 403
        port = visitor.host.split(":")[1]
        for origin in (None, "null", "https://evil.example", f"http://localhost:{port}",
                       f"https://{visitor.host}"):  # fmt: skip
            assert save(visitor, headers={"Origin": origin}).status == 403, origin
        assert save(visitor, headers={"Sec_Fetch_Site": "cross-site"}).status == 403
        assert save(visitor, headers={"Sec_Fetch_Site": "same-site"}).status == 403
        assert save(visitor, headers={"Host": "evil.example"}).status == 403
        assert save(visitor, headers={"Cookie": None}).status == 403
        assert save(visitor, token="x").status == 403
        assert save(visitor, headers={"Content-Type": "text/plain"}).status == 403
        assert (
            save(visitor, headers={"Content-Type": "multipart/form-data; boundary=x"}).status == 403
        )
        for method in ("HEAD", "PUT", "DELETE", "OPTIONS"):
            answer = visitor.ask(method)
            assert answer.status == 501
            assert answer.getheader("Access-Control-Allow-Origin") is None
        assert file.read_bytes() == before
        assert process.poll() is None
        assert save(visitor).status == 200  # with all of them it is saved
        process.communicate(timeout=20)
    assert process.returncode == 0
    assert file.read_bytes() != before


def test_it_listens_here_alone(file):
    with editing(file) as (_, visitor):
        assert visitor.host.startswith("127.0.0.1:")
        ports = [visitor.host]
        with editing(file) as (_, second):
            ports.append(second.host)
            assert second.path != visitor.path
        assert len(set(ports)) == 2


def test_ctrl_c_ends_it_and_changes_nothing(file):
    before = contents(file.parent)
    with editing(file) as (process, visitor):
        visitor.enter()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert err.endswith("Aborted!\n")  # it cannot spend anything
    assert contents(file.parent) == before


def test_a_file_that_changed_meanwhile_is_not_replaced(file):
    with editing(file) as (process, visitor):
        visitor.enter()
        SCHEMA.save(file)
        after = file.read_bytes()
        answer = save(visitor)
        assert answer.status == 422
        assert "has changed" in answer.text
        assert process.poll() is None
    assert file.read_bytes() == after


def test_a_silent_connection_stops_nobody(file):
    """A browser opens connections that it may need later."""
    with editing(file) as (process, visitor):
        idle = http.client.HTTPConnection(visitor.host, timeout=10)
        idle.connect()
        visitor.enter()
        assert save(visitor).status == 200
        process.communicate(timeout=20)
        idle.close()
    assert process.returncode == 0


def test_what_is_no_schema_is_refused_before_a_page_opens(folder):
    (folder / "no.json").write_text('{"columns": [5]}')
    refused(folder, "schema", "edit", "no.json", code=INTEGRITY)
    (folder / "no.json").write_text("[]")
    refused(folder, "schema", "edit", "no.json", code=INTEGRITY)
    refused(folder, "schema", "edit", "nothing.json", code=DATA)
    assert threading.active_count() < 50


@pytest.mark.skipif(os.name != "posix", reason="permissions as POSIX has them")
def test_a_browser_is_started_with_a_file_for_its_user_alone():
    """Lists of processes show what a browser is started with; the code is not in it."""
    with way_to("http://127.0.0.1:1/secret?a=1&b") as way:
        assert "secret" not in str(way)
        assert stat.S_IMODE(way.stat().st_mode) == 0o600
        assert "url=http://127.0.0.1:1/secret?a=1&amp;b" in way.read_text()
    assert not way.exists()


def test_a_length_of_thousands_of_digits_is_refused(file):
    with editing(file) as (process, visitor):
        visitor.enter()
        assert save(visitor, headers={"Content-Length": "1" * 5000}).status == 403
        assert process.poll() is None


@pytest.mark.skipif(os.name != "posix", reason="permissions as POSIX has them")
def test_guesses_are_for_their_owner_alone(file):
    """They were read off records; what was accepted is public, but a closed file stays closed."""

    def mode():
        return stat.S_IMODE(file.stat().st_mode)

    file.chmod(0o644)
    with editing(file) as (process, visitor):
        visitor.enter()
        save(visitor, save="keep", **{"0.number.low": "18"})
        process.communicate(timeout=20)
    assert ps_guesses(file)
    assert mode() == 0o600
    succeeded("schema", "accept", file, "--yes")
    assert not ps_guesses(file)
    assert mode() == 0o600


def ps_guesses(file):
    return guesses_in(json.loads(file.read_text()))
