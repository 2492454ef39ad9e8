"""What leaves this machine: a listener records every byte that `push` sends."""

import json
import os
import socket
import threading
from contextlib import suppress

import pytest

import privsketch as ps
from privsketch import PrivsketchError
from privsketch_studies.collector import LOGGER, Client, begin_session, make_study, push
from studies.tests.server import DESIGN, World, serving, sketch_of
from tests.chance import fixed_noise
from tests.commands import USAGE, run, succeeded

STAYED = "no byte of it left this machine"
OTHER = ps.Design.plan(
    n_components=2,
    domain=ps.Box(-2, 2, dim=2),
    n_features=16,
    budget=ps.Budget(1.0, 1e-6),
    random_state=0,
)
FACTS = {"is_sealed": False, "state": "open", "design": DESIGN.fingerprint, "roles": ["site"]}


@pytest.fixture
def listener():
    """An address, the facts that it states of its study, and every byte that arrives there."""
    facts, seen = dict(FACTS), bytearray()

    def answer(connection):
        with connection, suppress(OSError):
            connection.settimeout(5)
            while part := connection.recv(65536):
                seen.extend(part)
                if b"\r\n\r\n" not in part:
                    continue
                body = json.dumps([] if b"/uploads" in part else facts).encode()
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close"
                connection.sendall(f"{head}\r\n\r\n".encode() + body)
                return

    def listen():
        with suppress(OSError):
            while True:
                answer(sock.accept()[0])

    with socket.create_server(("127.0.0.1", 0)) as sock:
        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{sock.getsockname()[1]}/studies/x", facts, seen
        sock.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def private_files(folder):
    """Files that must stay here, by what they are; each has the text PRIVATE or a secret."""
    csv = "name,age\n" + "".join(f"PRIVATE {number},{number}\n" for number in range(1000))
    (folder / "patients.csv").write_text(csv)
    (folder / "named.sketch").write_text(csv)
    (folder / "my.token").write_text("psk_PRIVATE\n")
    ps.Ledger.create(folder / "my.ledger").add("PRIVATE", epsilon=1, delta=0)
    good = sketch_of("north").to_bytes()
    (folder / "longer.sketch").write_bytes(good + b"PRIVATE")
    (folder / "before.sketch").write_bytes(b"PRIVATE" + good)
    (folder / "damaged.sketch").write_bytes(good[:-40] + b"PRIVATE" + good[-33:])
    (folder / "other.sketch").write_bytes(sketch_of("PRIVATE", OTHER).to_bytes())
    key = ps.Key.generate("PRIVATE")
    key.save(folder / "my.key", passphrase=None)
    key.save(folder / "locked.key", passphrase="a b c d e f")
    DESIGN.save(folder / "design.json")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe.sketch")
    (folder / "link.sketch").symlink_to(folder / "patients.csv")
    merged = ps.merge([sketch_of("PRIVATE"), sketch_of("south", n_records=60)])
    merged.save(folder / "total.sketch")
    return sorted(path.name for path in folder.iterdir())


def test_no_byte_of_any_other_file_leaves_this_machine(listener, tmp_path):
    url, _, seen = listener
    names = private_files(tmp_path)
    assert len(names) == 15
    sketch_of("north").save(tmp_path / "good.sketch")
    for name in names:
        with pytest.raises(PrivsketchError, match=STAYED) as told:
            push(Client(url, "token"), [tmp_path / name])
        assert name in str(told.value)
        with pytest.raises(PrivsketchError, match=STAYED):  # beside one that could go
            push(Client(url, "token"), [tmp_path / "good.sketch", tmp_path / name])
    assert b"POST" not in seen
    for secret in (b"PRIVATE", b"psk_", b"SQLite", b"secrets"):
        assert secret not in seen


def test_a_client_sends_no_bytes_that_were_not_read_as_a_file_of_ours(listener):
    url, _, seen = listener
    with pytest.raises(PrivsketchError, match="OfferedFile"):
        Client(url, "token").call("POST", "/uploads", b"PRIVATE")
    assert seen == b""


def test_the_command_says_that_nothing_left(listener, tmp_path, monkeypatch):
    url, _, seen = listener
    private_files(tmp_path)
    monkeypatch.setenv("PRIVSKETCH_TOKEN", "token")
    told = run("collector", "push", url, tmp_path / "patients.csv")
    assert told.exit_code != 0
    assert STAYED in told.stderr
    assert seen == b""  # it has not even asked
    assert "PRIVATE" not in told.output


@pytest.mark.parametrize(
    "changed",
    [
        {"design": "0" * 64},
        {"state": "closed"},
        {"roles": ["reader"]},
        {"is_sealed": True},
        {"state": 5},
        {"design": None},
    ],
)
def test_a_sketch_that_the_study_does_not_take_stays(listener, tmp_path, changed):
    url, facts, seen = listener
    facts |= changed
    sketch_of("north").save(tmp_path / "north.sketch")
    with pytest.raises(PrivsketchError, match=STAYED):
        push(Client(url, "token"), [tmp_path / "north.sketch"])
    assert b"GET" in seen
    assert b"POST" not in seen


def test_the_bytes_that_were_checked_are_those_that_are_sent(listener, tmp_path, monkeypatch):
    """The file becomes another one after it was read: the sketch is sent all the same."""
    url, _, seen = listener
    file = tmp_path / "north.sketch"
    good = sketch_of("north").to_bytes()
    file.write_bytes(good)
    client = Client(url, "token")
    asked = client.call_json

    def replaced(path=""):
        file.write_text("PRIVATE")
        return asked(path)

    monkeypatch.setattr(client, "call_json", replaced)
    with suppress(PrivsketchError):  # the listener acknowledges nothing
        push(client, [file])
    assert b"PRIVATE" not in seen
    assert b"POST" in seen
    assert f"Content-Length: {len(good)}".encode() in seen


def test_a_sketch_without_noise_stays(listener, tmp_path):
    url, _, seen = listener
    records = [[0.5, 0.5]] * 50
    with fixed_noise():
        ps.sketch(records, DESIGN, source="north").save(tmp_path / "bare.sketch")
    with pytest.raises(PrivsketchError, match=STAYED):
        push(Client(url, "token"), [tmp_path / "bare.sketch"])
    assert seen == b""


def test_a_wrong_signature_beside_a_sketch_stops_both(listener, tmp_path):
    url, _, seen = listener
    sketch_of("north").save(tmp_path / "north.sketch")
    for text in (b"PRIVATE", ps.Key.generate("a").signature(b"other", "sketch").to_bytes()):
        (tmp_path / "north.sketch.sig").write_bytes(text)
        with pytest.raises(PrivsketchError, match=STAYED):
            push(Client(url, "token"), [tmp_path / "north.sketch"])
    assert seen == b""


def test_what_a_study_takes_is_uploaded_and_uploaded_again_after_its_end(tmp_path):
    world = World(str(tmp_path / "c.db"))
    sketch_of("north").save(tmp_path / "north.sketch")
    with serving(str(tmp_path / "c.db")) as address:
        client = Client(f"{address}/studies/heart", world.tokens["north"])
        assert push(client, [tmp_path / "north.sketch"])[0].is_new
        world.ask("olga", "POST", "/studies/heart/close")
        assert not push(client, [tmp_path / "north.sketch"])[0].is_new
        sketch_of("north", n_records=60).save(tmp_path / "late.sketch")
        with pytest.raises(PrivsketchError, match=f"is closed.*{STAYED}"):
            push(client, [tmp_path / "late.sketch"])
        make_study(world.store, "sealed", DESIGN.to_bytes(), owner="olga", sealed=True)
        with pytest.raises(PrivsketchError, match="sealed and takes none"):
            push(Client(f"{address}/studies/sealed", world.tokens["olga"]), [
                tmp_path / "north.sketch"
            ])  # fmt: skip
    world.store.close()


# ---------------------------------------------------------------- at the collector


def sent(address, head, *parts):
    """What a collector answers to a body of which only these parts are ever sent."""
    host, _, port = address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(f"{head}\r\nHost: {host}:{port}\r\n\r\n".encode())
        for part in parts:
            connection.sendall(part)
        answer = b""
        while part := connection.recv(65536):  # ends when the collector closes
            answer += part
    return answer.decode()


STARTS = (
    b"name,age\nPRIVATE,3\n",
    b"\x89privsX",
    b"SQLite format 3\0",
    b'{\n  "format": "privsketch-key",\n',
)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("is_sealed", [False, True])
def test_the_collector_stops_reading_at_the_first_bytes(
    tmp_path, caplog, monkeypatch, start, is_sealed
):
    """4,000 bytes are announced and few are sent: the answer does not wait for the rest."""
    monkeypatch.setattr(LOGGER, "propagate", True)
    caplog.set_level("INFO", LOGGER.name)
    world = World(str(tmp_path / "c.db"))
    make_study(world.store, "other", DESIGN.to_bytes(), owner="olga", sealed=is_sealed)
    world.add("east", "site", study="other")
    with serving(str(tmp_path / "c.db")) as address:
        head = (
            "POST /api/v1/studies/other/uploads HTTP/1.1\r\nContent-Length: 4000\r\n"
            "Content-Type: application/octet-stream\r\n"
            f"Authorization: Bearer {world.tokens['east']}"
        )
        for parts in ([start], [start[:3], start[3:]]):
            answer = sent(address, head, *parts)
            assert answer.startswith("HTTP/1.1 415 ")
            assert "connection: close" in answer.lower()
            assert "PRIVATE" not in answer
    assert "PRIVATE" not in caplog.text
    assert "uploads 415" in caplog.text
    world.store.close()


def test_a_form_stops_at_the_first_bytes_of_a_wrong_file(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(LOGGER, "propagate", True)
    caplog.set_level("INFO", LOGGER.name)
    world = World(str(tmp_path / "c.db"))
    session = begin_session(world.store, world.tokens["olga"])
    with serving(str(tmp_path / "c.db")) as address:
        for path, field in (
            ("/studies/heart/uploads", "file"),
            ("/studies/heart/uploads", "signature"),
            ("/studies/heart/people", "key"),
            ("/new", "design"),
            ("/studies/heart/people", "other"),
        ):
            head = (
                f"POST {path} HTTP/1.1\r\nContent-Length: 3000\r\nAccept: text/html\r\n"
                "Content-Type: multipart/form-data; boundary=edge\r\n"
                f"Sec-Fetch-Site: same-origin\r\nCookie: privsketch={session}"
            )
            part = f'--edge\r\nContent-Disposition: form-data; name="{field}"; filename="PRIVATE"'
            answer = sent(address, head, f"{part}\r\n\r\nname,a".encode(), b"ge\nPRIVATE,3\n")
            assert answer.startswith("HTTP/1.1 415 "), answer
            assert "PRIVATE" not in answer
    assert "PRIVATE" not in caplog.text
    assert caplog.text.count(" 415 ") == 5
    world.store.close()


def test_files_of_forms_stay_in_memory(world, monkeypatch):
    """A file that is large enough for a library to put it on the disk."""
    monkeypatch.setattr("tempfile.TemporaryFile", None)
    browser = world.client
    browser.cookies.set("privsketch", begin_session(world.store, world.tokens["olga"]))
    here = {"Origin": "http://testserver", "Accept": "text/html"}
    data = DESIGN.to_bytes() + b" " * 3_000_000
    answer = browser.post("/new", files={"design": ("d.json", data)}, headers=here)
    assert answer.status_code == 403  # the form has no token of the session
    assert "another session" in answer.text


def test_what_pull_writes_compare_takes(tmp_path, monkeypatch):
    world = World(str(tmp_path / "c.db"))
    world.push("north", sketch_of("north").to_bytes())
    world.push("south", sketch_of("south", n_records=60).to_bytes())
    monkeypatch.chdir(tmp_path)
    with serving(str(tmp_path / "c.db")) as address:
        for name in ("olga", "north"):
            monkeypatch.setenv("PRIVSKETCH_TOKEN", world.tokens[name])
            succeeded("collector", "pull", f"{address}/studies/heart", "-o", name)
    for folder in ("olga", "olga/sketches"):
        said = succeeded("compare", folder).output
        assert "north" in said
        assert "south" in said
    told = run("compare", "north")  # a site has its own sketch alone
    assert told.exit_code == USAGE
    assert "give two sketches or more, and not 1" in told.stderr
    world.store.close()
