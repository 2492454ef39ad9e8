"""Requests that should not be: each gets its status, changes nothing, leaves no word in a log."""

import asyncio
import json
import logging
import re
import socket
import time
from dataclasses import replace
from urllib.parse import urlsplit

import numpy as np
import pytest

import privsketch as ps
from privsketch_studies import CollectorError
from privsketch_studies.collector import (
    LOGGER,
    BodyReader,
    Settings,
    Store,
    TokenBuckets,
    UploadQuota,
    give_roles,
    make_study,
    revoke_token,
    take_roles,
    verify_store,
)
from studies.tests.server import DESIGN, PATIENT, World, serving, sketch_of
from tests import seams

pytestmark = pytest.mark.slow  # together more than a twentieth of a quick run

_network = seams.get("access.network")


FILE = {"Content-Type": "application/octet-stream"}
STUDY_ROUTES = [
    ("GET", ""),
    ("GET", "/design"),
    ("GET", "/total"),
    ("GET", "/events"),
    ("GET", "/uploads"),
    ("GET", f"/uploads/{'0' * 64}"),
    ("GET", "/members"),
    ("POST", "/close"),
    ("POST", "/uploads"),
    ("POST", f"/uploads/{'0' * 64}/set-aside"),
    ("POST", "/members"),
    ("DELETE", "/members/north"),
]
BODIES = {
    "/uploads": {"content": b"x", "headers": FILE},
    f"/uploads/{'0' * 64}/set-aside": {"json": {"because": "x"}},
    "/members": {"json": {"name": "x", "roles": ["site"]}},
}


def ask(world, who, method, path, study="heart"):
    more = BODIES.get(path, {}) if method == "POST" else {}
    return world.ask(who, method, f"/studies/{study}{path}", **more)


@pytest.mark.parametrize(("method", "path"), STUDY_ROUTES)
def test_tokens_that_are_wrong_revoked_or_of_others_open_nothing(world, method, path):
    make_study(world.store, "other", DESIGN.to_bytes(), owner="olga")
    world.add("eve", "owner", "site", "reader", study="other")
    world.add("late", "owner", "site")
    revoke_token(world.store, "late")
    good = world.tokens["north"]
    for token in (None, "late", "psk_", good[:-1], good + "x", "x" * 5000, "psk_" + "é" * 43):
        if isinstance(token, str) and not token.isascii():
            continue  # no such header can be sent
        assert ask(world, token, method, path).status_code == 401
    for study in ("heart", "nowhere"):  # whether it exists is not told
        answer = ask(world, "eve", method, path, study)
        assert answer.status_code == 403
        assert answer.json() == ask(world, "eve", method, path, "nowhere").json()
    assert verify_store(world.store).n_uploads == 0


@pytest.mark.parametrize("role", ["site", "teller", "reader"])
def test_what_only_owners_may(world, role):
    world.add("eve", role)
    for method, path in STUDY_ROUTES:
        if method != "GET" and path != "/uploads":
            assert ask(world, "eve", method, path).status_code == 403, path
    path = "/studies/mine"
    assert world.ask("eve", "PUT", path, content=DESIGN.to_bytes(), headers=FILE).status_code == 403


def test_owners_have_no_power_over_members_of_others(world):
    make_study(world.store, "other", DESIGN.to_bytes(), owner="olga")
    world.add("otto", "owner", study="other")
    made = world.ask(
        "otto", "POST", "/studies/other/members", json={"name": "own", "roles": ["site"]}
    )
    assert made.status_code == 201
    assert world.ask(made.json()["token"], "GET", "/me").json()["roles"] == {"other": ["site"]}
    assert world.ask("otto", "POST", "/members/north/token").status_code == 403
    assert world.ask("otto", "DELETE", "/members/olga/token").status_code == 403
    unknown = world.ask("otto", "POST", "/members/nobody/token")
    assert unknown.json() == world.ask("otto", "POST", "/members/north/token").json()
    renewed = world.ask("otto", "POST", "/members/own/token").json()["token"]
    assert world.ask(made.json()["token"], "GET", "/me").status_code == 401
    assert world.ask(renewed, "GET", "/me").status_code == 200
    assert world.ask("otto", "DELETE", "/members/own/token").status_code == 204
    assert world.ask(renewed, "GET", "/me").status_code == 401
    again = world.ask("otto", "POST", "/members/own/token").json()["token"]
    give_roles(world.store, "own", "heart", ["reader"])  # as somebody else may
    assert world.ask("otto", "POST", "/members/own/token").status_code == 403
    assert world.ask("otto", "DELETE", "/members/own/token").status_code == 204
    assert world.ask(again, "GET", "/me").status_code == 401
    take_roles(world.store, "otto", "other")
    assert world.ask("otto", "GET", "/studies/other").status_code == 403
    last = world.ask("olga", "DELETE", "/studies/heart/members/olga")
    assert last.status_code == 409


@pytest.mark.parametrize(
    "name",
    [
        *(
            "../../etc/passwd",
            "..",
            ".hidden",
            "a/b",
            "a\\b",
            "a\nb",
            "a\x00b",
            " a",
            "",
            "x" * 101,
        ),
        *("\u202ea", "north\u200b", "NORTH", "ｎｏｒｔｈ"),
    ],
)
def test_names_that_could_be_something_else_are_refused(world, name):
    new = {"name": name, "roles": ["site"]}
    status = world.ask("olga", "POST", "/studies/heart/members", json=new).status_code
    assert status == (409 if name in ("NORTH", "ｎｏｒｔｈ") else 422)


@pytest.mark.parametrize("name", ["..", "%2e%2e", "a%2fb", "A", "a_b", "-a", "a" * 61, "a%0a"])
def test_studies_have_names_that_are_no_paths(world, name):
    path = f"/studies/{name}"
    status = world.ask("olga", "PUT", path, content=DESIGN.to_bytes(), headers=FILE).status_code
    assert status in (404, 405, 422)


def test_scripts_in_names_are_text(world):
    name = "<script>alert(1)<b>"
    bad = "<img src=x onerror=alert(1)>"
    assert world.push("north", sketch_of(bad).to_bytes()).status_code == 201
    answer = world.ask("olga", "GET", "/studies/heart/uploads")
    assert answer.json()[0]["whose"] == bad
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    new = {"name": name, "roles": ["reader"]}
    assert world.ask("olga", "POST", "/studies/heart/members", json=new).status_code == 201
    told = world.ask("olga", "GET", "/studies/heart/members")
    assert name in [one["name"] for one in told.json()]
    assert told.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": ""}, 415),
        ({"Content-Type": "application/json"}, 415),
        ({**FILE, "Content-Encoding": "gzip"}, 415),
        ({**FILE, "Content-Encoding": "br"}, 415),
        ({**FILE, "Privsketch-Signature": "!"}, 422),
        ({**FILE, "Privsketch-Signature": "A" * 5000}, 422),
    ],
)
def test_bodies_of_other_kinds(world, headers, status):
    data = sketch_of("north").to_bytes()
    path = "/studies/heart/uploads"
    assert world.ask("north", "POST", path, content=data, headers=headers).status_code == status


def test_objects_are_small_and_of_one_shape(world):
    path = "/studies/heart/members"
    for body, status in (
        (b"{" * 100_000, 413),
        (b"[" * 20_000, 422),
        (b"{}", 422),
        (b'{"name": 1, "roles": ["site"]}', 422),
        (b'{"name": "a", "roles": ["king"]}', 422),
        (b'{"name": "a", "roles": ["site"], "more": 1}', 422),
        (b"\xff", 422),
    ):
        headers = {"Content-Type": "application/json"}
        answer = world.ask("olga", "POST", path, content=body, headers=headers)
        assert answer.status_code == status, body[:20]
        assert set(answer.json()) == {"error"}


def scrambled(rng, good):
    """A body that is no good one: noise, or a good one with some bytes changed, cut or added."""
    kind = rng.integers(4)
    if kind == 0:
        return rng.bytes(int(rng.integers(0, 3000)))
    data = bytearray(good)
    if kind == 1:
        for place in rng.integers(0, len(data), int(rng.integers(1, 6))):
            data[place] ^= int(rng.integers(1, 256))
    elif kind == 2:
        del data[int(rng.integers(len(data))) :]
    else:
        data += rng.bytes(int(rng.integers(1, 50)))
    return bytes(data)


@pytest.mark.parametrize("n_bodies", [150, pytest.param(10_000, marks=pytest.mark.exhaustive)])
def test_random_bodies_change_nothing(world, n_bodies, caplog):
    """And none of them is an error of ours: 5xx."""
    caplog.set_level(logging.DEBUG)
    assert world.push("south", sketch_of("south").to_bytes()).status_code == 201
    before = world.total().to_bytes()
    rng = np.random.default_rng(n_bodies)
    good = sketch_of("north").to_bytes()
    for _ in range(n_bodies):
        body = scrambled(rng, good)
        assert world.push("north", body).status_code in (413, 415, 422), body[:100]
    assert world.total().to_bytes() == before
    assert verify_store(world.store).n_uploads == 1


def test_logs_have_no_word_of_a_client(world, caplog):
    LOGGER.propagate = True
    caplog.set_level(logging.DEBUG)
    secret = "wordofaclient"
    world.push("north", sketch_of(secret).to_bytes())
    world.push("north", secret.encode() * 10)
    world.ask("olga", "GET", f"/studies/{secret}?after={secret}")
    world.ask("olga", "POST", "/studies/heart/members", json={"name": secret, secret: secret})
    world.ask(f"psk_{secret}", "GET", "/me")
    world.client.request(secret, f"/{secret}", headers={secret: secret})
    told = "\n".join(one.getMessage() for one in caplog.records if one.name == LOGGER.name)
    assert told.count("\n") >= 5
    assert secret not in told
    assert not [token for token in world.tokens.values() if token in caplog.text]


def test_errors_of_ours_are_told_by_their_place_alone(world, monkeypatch, caplog):
    LOGGER.propagate = True

    def broken(*_, **__):
        raise RuntimeError("wordofaclient")

    seams.set(monkeypatch, "uploads.submit", broken)
    answer = world.push("north", sketch_of("north").to_bytes())
    assert answer.status_code == 500
    assert "wordofaclient" not in caplog.text + answer.text
    assert "RuntimeError" in caplog.text


# ---------------------------------------------------------------- how often, how slowly


def test_buckets_fill_again(monkeypatch):
    clock = [0.0]
    seams.set(monkeypatch, "limits.time.monotonic", lambda: clock[0])
    buckets = TokenBuckets(rate=2.0, burst=3.0)
    assert [buckets.take("a") for _ in range(3)] == [0, 0, 0]
    assert buckets.take("a") == 0.5
    assert buckets.take("b") == 0
    clock[0] = 0.5
    assert [buckets.take("a") == 0 for _ in range(2)] == [True, False]
    clock[0] = 1000.0
    assert [buckets.take("a") == 0 for _ in range(4)] == [True, True, True, False]


def test_who_asks_too_often_waits(tmp_path):
    world = World(str(tmp_path / "c.db"), Settings(member_rate=0.001, member_burst=5.0))
    found = [world.ask("north", "GET", "/me").status_code for _ in range(7)]
    assert found == [200] * 5 + [429] * 2
    assert world.ask("south", "GET", "/me").status_code == 200
    strangers = Settings(failure_rate=0.001, failure_burst=3.0)
    world = World(str(tmp_path / "d.db"), strangers)
    found = [world.ask("nobody", "GET", "/me").status_code for _ in range(5)]
    assert found == [401] * 3 + [429] * 2
    assert world.ask("north", "GET", "/me").status_code == 200  # from the same address
    world.store.close()


@pytest.fixture
def served(tmp_path):
    """A server of its own with little patience, and its world."""
    place = str(tmp_path / "collector.db")
    world = World(place)
    settings = Settings(
        head_seconds=1.0, body_seconds=1.0, body_rate=1e6, member_rate=1e6, member_burst=1e6
    )
    with serving(place, settings) as address:
        yield world, urlsplit(address).port
    world.store.close()


def said(port, *parts, timeout=10):
    """What a server answers to bytes, and that it hangs up afterwards or not at all."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
        for part in parts:
            connection.sendall(part)
        return answer_of(connection)


def answer_of(connection):
    """One whole answer; nothing if the server hangs up."""
    found = b""
    while part := connection.recv(65536):
        found += part
        start, _, body = found.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", start.lower())
        if length is not None and len(body) >= int(length[1]):
            break
    return found


def head(world, who, *more, path="/api/v1/studies/heart/uploads"):
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {world.tokens[who]}"]
    lines += ["Content-Type: application/octet-stream", *more]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


@pytest.mark.slow  # it waits for a second
def test_bodies_that_are_too_long_or_too_slow_are_not_waited_for(served):
    world, port = served
    huge = said(port, head(world, "north", f"Content-Length: {10**12}"))
    assert huge.startswith(b"HTTP/1.1 413")
    slow = said(port, head(world, "north", "Content-Length: 2000"), b"\x89privsk\n")
    assert slow.startswith(b"HTTP/1.1 408")
    chunk = b"10000\r\n" + bytes(65536) + b"\r\n"
    endless = said(port, head(world, "north", "Transfer-Encoding: chunked"), chunk)
    assert endless.startswith(b"HTTP/1.1 413")
    stranger = head(world, "north", "Content-Length: 2000").replace(b"psk_", b"psx_")
    assert said(port, stranger).startswith(b"HTTP/1.1 401")  # before the body is there
    data = sketch_of("north").to_bytes()
    kept = said(port, head(world, "north", f"Content-Length: {len(data)}"), data)
    assert kept.startswith(b"HTTP/1.1 201")
    assert json.loads(kept.partition(b"\r\n\r\n")[2])["is_new"]


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"GET /health HT",
        b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\nx",
        b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /health HT",
    ],
    ids=range(5),
)
def test_connections_that_ask_nothing_more_are_closed(served, start):
    """Heads that do not end, bodies of what was answered already, and silence."""
    _, port = served
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(start)
        if b"\r\n\r\n" in start:
            assert answer_of(connection).startswith(b"HTTP/1.1 200")
        assert connection.recv(1) == b""


@pytest.mark.slow  # it waits for a second
def test_parts_of_a_head_do_not_buy_time(served):
    _, port = served
    with socket.create_connection(("127.0.0.1", port), timeout=0.1) as connection:
        for _ in range(100):
            try:
                connection.sendall(b"G")
                if connection.recv(1) == b"":
                    return
            except TimeoutError:
                continue
            except ConnectionError:
                return
    pytest.fail("it goes on for ever")


@pytest.mark.slow
def test_who_does_not_read_is_hung_up_on(served):
    """Answers that nobody takes fill what lies between; then the connection ends."""
    _, port = served
    ask = b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"

    def go_on(connection):
        for _ in range(100):
            connection.sendall(ask * 10)
            time.sleep(0.05)

    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(10)
        connection.connect(("127.0.0.1", port))
        with pytest.raises(ConnectionError):
            go_on(connection)


@pytest.mark.parametrize("n_allowed", [10**4, 10**9])
def test_who_may_bring_much_must_still_bring_it(n_allowed):
    """Time for a body follows from what has come, not from what may come."""

    async def drip():
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def wait():
        gate = BodyReader(drip, Settings(body_seconds=0.2, body_rate=1e4))
        gate.max_bytes = n_allowed
        for _ in range(100):
            await gate.receive()

    with pytest.raises(CollectorError, match="too long"):
        asyncio.run(wait())


def test_room_for_files_is_bounded():
    room = UploadQuota(Settings(max_bodies=2, max_body_bytes=100))
    first, second = room.reserve("a", 40), room.reserve("a", 40)
    with pytest.raises(CollectorError):
        room.reserve("a", 1)  # three of one member
    with pytest.raises(CollectorError):
        room.reserve("b", 40)
    first()
    third = room.reserve("b", 40)
    second()
    third()
    whole = room.reserve("b", 1000)  # nothing else is there
    with pytest.raises(CollectorError):
        room.reserve("c", 1)
    whole()
    room.reserve("c", 1)()


def test_room_is_given_back_whatever_happens(tmp_path):
    world = World(str(tmp_path / "c.db"), replace(PATIENT, max_bodies=1))
    for _ in range(3):
        assert world.push("north", b"x").status_code == 415
    assert world.push("north", sketch_of("north").to_bytes()).status_code == 201
    world.store.close()


def test_lengths_of_two_kinds_are_refused(served):
    world, port = served
    both = head(world, "north", "Content-Length: 5", "Transfer-Encoding: chunked")
    answer = said(port, both, b"0\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413")
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::2:3", "2001:db8::/64"),
        ("x" * 1000, ""),
    ],
)
def test_addresses_of_one_network_count_as_one(address, place):
    assert _network(address) == place


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET /health HTTP/x\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nBad Header: y\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n",
        b"POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /health HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: x\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ],
    ids=range(9),
)
def test_requests_that_are_none(served, data):
    _, port = served
    try:
        answer = said(port, data + b"\r\n\r\n")
    except ConnectionResetError:
        answer = b""
    assert answer[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 405", b"HTTP/1.1 431", b"HTTP/1.1 501", b"")
    assert said(port, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").startswith(b"HTTP/1.1 200")


def test_a_store_that_is_gone_is_no_error_of_the_client(tmp_path):
    world = World(str(tmp_path / "c.db"))
    world.store.close()
    for file in tmp_path.glob("c.db*"):
        file.unlink()
    (tmp_path / "c.db").mkdir()
    answer = world.ask("north", "GET", "/me")
    assert (answer.status_code, answer.json()["error"]["refusal"]) == (503, "storage")
    assert world.client.get("/health").status_code == 503


@pytest.mark.parametrize(
    "place", ["nofolder/x.db", "mysql://x/y", "postgresql://u:pa%zz@[/", ":::"]
)
def test_places_that_are_no_store(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if place == ":::":
        Store(place).close()  # a name like others
        return
    with pytest.raises(ps.PrivsketchError) as caught:
        Store(place)
    assert "pa%zz" not in str(caught.value)


def test_patience_is_for_tests():
    assert PATIENT.member_rate > Settings().member_rate
