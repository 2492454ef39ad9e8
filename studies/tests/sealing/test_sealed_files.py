"""Files of sealed studies: known answers, and mutated ones, which are refused with our error."""

import hashlib
import json
import random
import struct

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

import privsketch as ps
import privsketch_studies as studies
from privsketch import FileError, PrivsketchError, SignatureError
from privsketch.signing import encryption, signature_within_rules
from privsketch_studies import CheckedBallots, check_ballots
from privsketch_studies.sealing import (
    VoidStudy,
    packed,
    signed_json,
    splitting,
    unpacked,
    void_study,
)
from studies.tests.sealed import GAUSSIAN, People, cast, integers
from tests import seams

SECRET = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """One of every kind of file, and how it is read."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRIVSKETCH_HOME", str(home))
        people = People()
        study = people.open_study(last_day="2020-02-29")
        rng = np.random.default_rng(0)
        ballots = [cast(study, integers(rng, study), key) for key in people.holders]
        closed = people.closed(study, ballots)
        tally = people.tally(study, ballots, closed, 0)
        void = void_study(study, key=people.tellers[1], study_key_file=None)
        checked, _ = check_ballots(study, ballots, key=people.study_keys[1])
        return {
            "card": (people.cards[0].to_bytes(), studies.Card.from_bytes),
            "teller's card": (people.cards[-1].to_bytes(), studies.Card.from_bytes),
            "study": (study.to_bytes(), studies.SealedStudy.from_bytes),
            "ballot": (ballots[0].to_bytes(), studies.Ballot.from_bytes),
            "checked": (checked.to_bytes(), CheckedBallots.from_bytes),
            "closed": (closed.to_bytes(), studies.ClosedList.from_bytes),
            "tally": (tally.to_bytes(), studies.Tally.from_bytes),
            "void": (void.to_bytes(), VoidStudy.from_bytes),
        }


KINDS = ["card", "teller's card", "study", "ballot", "checked", "closed", "tally", "void"]


# ---------------------------------------------------------------- known answers


def test_signed_json_is_as_documented():
    key = ps.Key("h3", {"ed25519": SECRET})
    data = signed_json("card", {"a": 1, "b": "x"}, key)
    assert data.startswith(b'{\n  "format": "privsketch-card",\n  "version": 1,\n  "a": 1,\n')
    found = json.loads(data)
    assert list(found) == ["format", "version", "a", "b", "signer", "signature"]
    body = data[: data.index(b',\n  "signature"')]
    public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(found["signer"]))
    public.verify(bytes.fromhex(found["signature"]), b"privsketch card v1\0" + body)
    # Ed25519 is deterministic: bytes are for ever.
    assert hashlib.sha256(data).hexdigest()[:16] == "9c2c7cb14f8c9ca9"


def test_binary_files_are_as_documented():
    key = ps.Key("h3", {"ed25519": SECRET})
    data = packed("ballot", {"b": 2, "a": 1}, b"content", key)
    text = b'{"a":1,"b":2}'
    body = b"\x89privsb\n" + struct.pack("<II", 1, len(text)) + text + b"content"
    body += key.public.identity
    assert data[:-64] == body
    public = Ed25519PublicKey.from_public_bytes(key.public.identity)
    public.verify(data[-64:], b"privsketch ballot v1\0" + body)
    assert hashlib.sha256(data).hexdigest()[:16] == "c31aa5cbbc49b300"
    found = unpacked(data, "ballot", ("a", "b"), "x")
    assert (found.signer, found.header) == (key.public.identity, {"a": 1, "b": 2})
    assert bytes(found.content) == b"content"


def test_a_ballot_is_as_documented(files, monkeypatch, tmp_path):
    """Opened by the library alone, and added up by hand."""
    from cryptography.hazmat.primitives import hpke
    from cryptography.hazmat.primitives.asymmetric import mlkem, x25519

    monkeypatch.setenv("PRIVSKETCH_HOME", str(tmp_path))
    people = People(n_tellers=3)
    study = people.open_study()
    values = integers(np.random.default_rng(1), study)
    data = cast(study, values, people.holders[2]).to_bytes()
    (length,) = struct.unpack_from("<I", data, 12)
    header = json.loads(data[16 : 16 + length])
    digest = hashlib.sha256(b"privsketch study v1\0" + study.to_bytes()).digest()
    holder = people.holders[2].public
    assert header["study"] == digest.hex() == study.digest
    assert header["holder"] == holder.fingerprint
    assert header["lengths"] == [1168, 1168, 1136 + 8 * values.shape[0] * (values.shape[1] + 2)]
    suite = hpke.Suite(hpke.KEM.MLKEM768_X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.CHACHA20_POLY1305)
    start, contents = 16 + length, []
    for size, key in zip(header["lengths"], people.study_keys, strict=True):
        names = json.loads(key.public.to_bytes())["keys"]
        assert sorted(names) == ["ed25519", "mlkem768", "x25519"]
        text = json.dumps(names, sort_keys=True, separators=(",", ":")).encode()
        info = b"privsketch ballot v1\0" + b"".join(
            [
                hashlib.sha256(encryption.SUITE.encode()).digest(),
                digest,
                hashlib.sha256(holder.identity).digest(),
                hashlib.sha256(text).digest(),
            ]
        )
        secrets = key._secrets
        private = hpke.MLKEM768X25519PrivateKey(
            mlkem.MLKEM768PrivateKey.from_seed_bytes(secrets["mlkem768"]),
            x25519.X25519PrivateKey.from_private_bytes(secrets["x25519"]),
        )
        contents.append(suite.decrypt(data[start : start + size], private, info))
        start += size
    assert start == len(data) - 96
    words = np.frombuffer(contents[2], dtype="<u8").reshape(len(values), -1).copy()
    for content, key in zip(contents[:2], people.study_keys, strict=False):
        place = splitting.ShareId(digest, holder.identity, key.public.identity)
        for level in range(len(values)):
            words[level] += splitting.expand(content, place, level, words.shape[1])
    assert words[:, :-2].view(np.int64).tolist() == values.tolist()
    assert words[:, -2].tolist() == [1] * len(values)


def test_a_closed_list_is_named_by_what_it_says(files):
    data, read = files["closed"]
    found = json.loads(data)
    text = json.dumps(
        {"ballots": found["ballots"], "study": found["study"]}, separators=(",", ":")
    ).encode()
    expected = hashlib.sha256(b"privsketch closed-list v1\0" + text).hexdigest()
    assert read(data).digest == expected


# ---------------------------------------------------------------- anything else is refused


@pytest.mark.parametrize("kind", KINDS)
def test_files_come_back(files, kind):
    data, read = files[kind]
    assert read(data).to_bytes() == data


@pytest.mark.parametrize("kind", KINDS)
def test_no_kind_is_taken_for_another(files, kind):
    _, read = files[kind]
    for theirs, reads in files.values():
        if read != reads:
            with pytest.raises(FileError):
                read(theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_mutated_files_are_refused(files, kind):
    """A sample; `python -m benchmarks sealed_files` does a hundred thousand."""
    from benchmarks.sealed_files import mutated

    data, read = files[kind]
    rng = random.Random(kind)
    for _ in range(60):
        bad = mutated(data, rng)
        if bad == data:
            continue
        with pytest.raises(PrivsketchError):
            accepted_by_tellers(read(bad), data)


def accepted_by_tellers(found, data):
    """A study is not signed in its file: whoever changes it has another one."""
    if isinstance(found, studies.SealedStudy):
        original = studies.SealedStudy.from_bytes(data)
        assert found.digest != original.digest
        found.require_open()


@pytest.mark.parametrize("kind", ["card", "closed", "checked", "void"])
def test_json_that_is_written_otherwise_is_refused(files, kind):
    """Even when its maker signs it: spaces, another order, a field more, a number with a point."""
    data, read = files[kind]
    text = data.decode()
    for bad in (
        text.replace("  ", "    ", 1),
        text.replace('"version": 1', '"version": 1.0'),
        text.replace("{", '{\n  "more": 1,', 1),
        text + "\n",
        text.rstrip("\n"),
        json.dumps(json.loads(text)),
    ):
        with pytest.raises(FileError):
            read(bad.encode())


def test_headers_that_are_written_otherwise_are_refused():
    """Signed by their maker, and not canonical."""
    key = ps.Key.generate("x")
    data = packed("ballot", {"a": 1}, b"", key)
    spaced = data[:12] + struct.pack("<I", 8) + b'{"a": 1}' + key.public.identity
    signed = spaced + signature_within_rules(key, spaced, "ballot").signature
    with pytest.raises(FileError, match="not as privsketch writes it"):
        unpacked(signed, "ballot", ("a",), "x")
    other = data[:8] + struct.pack("<I", 2) + data[12:-64]
    signed = other + signature_within_rules(key, other, "ballot").signature
    with pytest.raises(FileError, match="of version 2"):
        unpacked(signed, "ballot", ("a",), "x")
    longer = data[:12] + struct.pack("<I", 2**31) + data[16:-64]
    signed = longer + signature_within_rules(key, longer, "ballot").signature
    with pytest.raises(FileError, match="impossible lengths"):
        unpacked(signed, "ballot", ("a",), "x")


@pytest.mark.parametrize("lengths", [[], [1136], [1136, 10**9], [-1, 1137], "x", [1.5], None])
def test_impossible_lengths_are_refused(lengths):
    key = ps.Key.generate("x")
    header = {
        "study": "0" * 64,
        "holder": key.fingerprint,
        "n_levels": 1,
        "n_words": 1,
        "lengths": lengths,
        "sampler": "exact integer sampler of privsketch, operating-system entropy",
    }
    with pytest.raises(FileError):
        studies.Ballot.from_bytes(packed("ballot", header, bytes(2000), key))


def test_signatures_come_before_parsing(monkeypatch):
    """What nobody signed is not parsed."""
    from privsketch_studies.sealing import files as module

    key = ps.Key.generate("x")
    data = signed_json("card", {"a": 1}, key)
    binary = packed("tally", {"a": 1}, b"", key)
    seams.set(monkeypatch, "files.document_fields", None)
    seams.set(monkeypatch, "files.parse_json", None)
    with pytest.raises(SignatureError):
        module.read_signed_json(data.replace(b'"a": 1', b'"a": 2'), "card", ("a",), "x")
    with pytest.raises(SignatureError):
        module.unpacked(binary[:-1] + bytes([binary[-1] ^ 1]), "tally", ("a",), "x")


def test_keys_that_nobody_can_have_are_refused():
    """An X25519 key of small order: the library refuses, and so do we, with our error."""
    good = ps.Key.generate("x", for_study=True).public
    with pytest.raises(FileError, match="nobody can have"):
        encryption.encrypt_message(good.keys["mlkem768"], bytes(32), b"message", b"info")
    with pytest.raises(FileError, match="nobody can have"):
        encryption.encrypt_message(b"\xff" * 1184, good.keys["x25519"], b"message", b"info")


def test_study_keys_lie_in_locked_files(tmp_path, monkeypatch):

    seams.set(monkeypatch, "encryption.SCRYPT", {"n": 16, "r": 1, "p": 1})
    key = ps.Key.generate("A", for_study=True)
    key.save(tmp_path / "a.key", passphrase="correct horse")
    assert (tmp_path / "a.key").stat().st_mode & 0o777 == 0o600
    again = ps.Key.load(tmp_path / "a.key", passphrase="correct horse")
    assert again.unseal(key.public.seal(b"message", b"info"), b"info") == b"message"
    assert again.unseal(key.public.seal(b"message", b"info"), b"other") is None
    text = (tmp_path / "a.key").read_text()
    assert not any(secret.hex() in text for secret in key._secrets.values())
    with pytest.raises(FileError, match="exists"):
        key.save(tmp_path / "a.key", passphrase="correct horse")
    assert ps.PublicKey.from_bytes(key.public.to_bytes()).for_study


def test_a_study_says_what_it_says(files):
    study = studies.SealedStudy.from_bytes(files["study"][0])
    text = study.describe()
    assert study.fingerprint[:4] in text
    assert "teller 0, teller 1" in text
    assert "2020-02-29" in text
    assert study.design == GAUSSIAN


def test_the_library_refuses_to_sign_every_kind_of_sealed_files():
    import re
    from pathlib import Path

    from privsketch.signing import SEALED_KINDS
    from privsketch_studies import sealing as room
    from privsketch_studies.sealing import files

    sealed = (studies.SealedStudy, studies.Card, studies.CheckedBallots, studies.ClosedList)
    named = {kind.KIND for kind in (*sealed, studies.Ballot, studies.Tally, VoidStudy)}
    assert set(files.MAGIC) < named
    for file in Path(room.__file__).parent.glob("*.py"):
        named |= set(re.findall(r'(?:signed_json|packed)\(\s*"([a-z-]+)"', file.read_text()))
    assert named == set(SEALED_KINDS)
