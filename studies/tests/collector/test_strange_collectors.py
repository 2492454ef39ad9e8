"""Collectors that lie: `pull` writes nothing of what it should not, and does not break."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import privsketch as ps
from privsketch import ParameterError, PrivsketchError
from privsketch_studies.collector import START, Client, digest_of, pull, push
from privsketch_studies.collector import client as client_module
from studies.tests.server import DESIGN, World, serving, sketch_of
from tests import seams

BLOB = b"import os"
DIGEST = hashlib.sha256(BLOB).hexdigest()
MADE = ("made study", {"design": DESIGN.fingerprint})
UPLOADED = ("uploaded", {"digest": DIGEST})


def chain(*acts):
    """A whole chain of events, as their JSON."""
    found, previous = [], START
    for number, (act, facts) in enumerate(acts, 1):
        digest = digest_of("x", number, 1, None, act, facts, previous)
        event = {"number": number, "at": 1, "member": None, "act": act, "facts": facts}
        found.append({**event, "previous": previous, "digest": digest})
        previous = digest
    return found


def listed(kind, whose="a"):
    return [{"digest": DIGEST, "kind": kind, "whose": whose, "signer": None}]


GOOD = {
    "": {"state": "open", "is_sealed": True},
    "/events": chain(MADE, UPLOADED),
    "/uploads": listed("card"),
    "/design": DESIGN.to_bytes(),
    f"/uploads/{DIGEST}": BLOB,
}


@pytest.fixture
def strange(monkeypatch):
    """Answers of a collector, the requests it got, and its address."""
    seams.set(monkeypatch, "client.TRIES", 1)
    answers, seen = dict(GOOD), []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            seen.append((self.path, self.headers.get("Authorization")))
            value = answers.get(self.path.partition("/studies/x")[2].partition("?")[0], b"")
            status, headers, body = value if isinstance(value, tuple) else (200, {}, value)
            self.send_response(status)
            for name, text in headers.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield answers, seen, f"http://127.0.0.1:{server.server_port}/studies/x"
        server.shutdown()
        thread.join()


def test_what_is_as_it_should_be_is_pulled(strange, tmp_path):
    _, _, url = strange
    found = pull(Client(url, "token"), tmp_path)
    assert sorted(file.name for file in found.written) == ["a.card", "design.json", "events.json"]


@pytest.mark.parametrize(
    "lie",
    [
        {"": 5},
        {"": (302, {"Location": "file:///etc/passwd"}, b"")},
        {"": (500, {"Content-Length": "1000"}, b"abc")},
        {"": (200, {"Content-Length": "1000"}, b"abc")},
        {"/events": 5},
        {"/events": [5]},
        {"/events": chain(MADE, ("uploaded", [DIGEST]))},
        {"/events": chain(MADE, ("uploaded", {"digest": "../x"}))},
        {"/events": chain(MADE, UPLOADED)[1:]},
        {"/events": chain(("made study", {"design": "0" * 64}), UPLOADED)},
        {"/events": chain(MADE)},
        {"/uploads": 5},
        {"/uploads": [5]},
        {"/uploads": []},  # an event tells of one
        *({"/uploads": listed(kind)} for kind in ("py", "sh", "json", "key", "../x", "")),
        {"/design": b"else"},
        {f"/uploads/{DIGEST}": b"else"},
        {
            "/uploads": listed("sketch"),
            f"/uploads/{DIGEST}": (200, {"Privsketch-Signature": "a=b"}, BLOB),
        },
    ],
    ids=range(23),
)
def test_lies_are_refused(strange, tmp_path, lie):
    answers, _, url = strange
    answers |= lie
    with pytest.raises(PrivsketchError):
        pull(Client(url, "token"), tmp_path / "folder")
    assert not {file.suffix for file in tmp_path.rglob("*")} & {".py", ".sh", ".key"}


def test_names_stay_in_the_folder_and_files_that_are_there_stay(strange, tmp_path):
    answers, _, url = strange
    answers["/uploads"] = listed("card", "../../up/../" + "x" * 300)
    (found,) = (f for f in pull(Client(url, "token"), tmp_path).written if f.suffix == ".card")
    assert found.parent == tmp_path
    other = tmp_path / "other"
    other.mkdir()
    for name in ("a.card", f"a-{DIGEST[:8]}.card"):
        (other / name).write_bytes(b"mine")
    answers["/uploads"] = listed("card")
    with pytest.raises(PrivsketchError, match="exists"):
        pull(Client(url, "token"), other)
    assert (other / "a.card").read_bytes() == b"mine"


def test_what_was_set_aside_is_moved_out_of_the_way(strange, tmp_path):
    """A list would be closed by what a teller said before it looked again."""
    answers, _, url = strange
    answers["/uploads"] = listed("checked")
    pull(Client(url, "token"), tmp_path)
    newer = hashlib.sha256(b"newer").hexdigest()
    more = [("set aside", {"digest": DIGEST}), ("uploaded", {"digest": newer})]
    answers["/events"] = chain(MADE, UPLOADED, *more)
    answers["/uploads"] = [{**listed("checked")[0], "digest": newer}]
    answers[f"/uploads/{newer}"] = b"newer"
    pull(Client(url, "token"), tmp_path)
    assert [file.read_bytes() for file in tmp_path.glob("*.checked")] == [b"newer"]
    assert (tmp_path / "set-aside" / "a.checked").read_bytes() == BLOB


def test_endless_and_slow_answers_end(strange, tmp_path, monkeypatch):
    answers, _, url = strange
    seams.set(monkeypatch, "client.MAX_ANSWER", 10_000)
    answers[""] = bytes(20_000)
    with pytest.raises(PrivsketchError, match="larger"):
        pull(Client(url, "token"), tmp_path)
    seams.set(monkeypatch, "client.ANSWER_SECONDS", -1e9)
    with pytest.raises(PrivsketchError, match="too long"):
        Client(url, "token").call("GET", "/design")
    monkeypatch.undo()
    seams.set(monkeypatch, "client.PAGE", 1)
    seams.set(monkeypatch, "client.MAX_EVENTS", 3)
    seams.set(monkeypatch, "client.require_chain", lambda *_, **__: START)
    answers |= GOOD | {"/events": chain(MADE)}
    with pytest.raises(PrivsketchError, match="more events"):
        pull(Client(url, "token"), tmp_path)


def test_a_token_goes_to_no_proxy_without_tls(strange, monkeypatch):
    _, seen, url = strange
    monkeypatch.setenv("http_proxy", url.removesuffix("/studies/x"))
    with pytest.raises(PrivsketchError):
        Client("http://127.0.0.1:1/studies/x", "token").call("GET")
    assert seen == []


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1/studies/x",
        "http://127.0.0.1/\u00e9/studies/x",
        "https://x:abc/studies/x",
        "https://x:99999/studies/x",
        "http://\u2100/studies/x",
        "file:///studies/x",
        "https://a:b@x/studies/x",
    ],
)
def test_addresses_that_are_none(url):
    with pytest.raises(ParameterError):
        Client(url, "token")


def test_signatures_come_back_and_uploads_in_between_are_no_lie(tmp_path, monkeypatch):
    place = str(tmp_path / "c.db")
    world = World(place)
    key = ps.Key.generate("east")
    world.add("east", "site", key=key.public)
    file = tmp_path / "east.sketch"
    sketch_of("east").save(file)
    key.signature(file.read_bytes(), "sketch").save(f"{file}.sig")
    with serving(place) as address:
        push(Client(f"{address}/studies/heart", world.tokens["east"]), [file])
        asked = client_module._pull_events

        def slow(*arguments):
            found = asked(*arguments)
            seams.set(monkeypatch, "client.pull_events", asked)
            assert world.push("north", sketch_of("north").to_bytes()).status_code == 201
            return found

        seams.set(monkeypatch, "client.pull_events", slow)
        found = pull(Client(f"{address}/studies/heart", world.tokens["olga"]), tmp_path / "out")
    names = {str(one.relative_to(tmp_path / "out")) for one in found.written}
    assert {"sketches/east.sketch.sig", "sketches/north.sketch"} <= names
    back = (tmp_path / "out" / "sketches" / "east.sketch.sig").read_bytes()
    assert back == (tmp_path / "east.sketch.sig").read_bytes()
    world.store.close()
