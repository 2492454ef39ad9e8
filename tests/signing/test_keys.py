"""Key files: known answers, locks, and every way in which one must be refused."""

import copy
import json
import os
import pickle
import random
import subprocess
import sys
import traceback
import unicodedata
from hashlib import scrypt

import pytest
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

import privsketch as ps
from privsketch import FileError, ParameterError
from privsketch._base import canonical_json
from privsketch.signing import is_locked
from tests import seams

SECRET = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"  # RFC 8032, test 1
PUBLIC = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
PASSPHRASE = "correct horse"


@pytest.fixture
def key():
    return ps.Key("h3", {"ed25519": bytes.fromhex(SECRET)})


@pytest.fixture
def quick_lock(monkeypatch):
    """A lock that takes no time, and no memory, to try."""
    seams.set(monkeypatch, "encryption.SCRYPT", {"n": 16, "r": 1, "p": 1})


@pytest.fixture
def fixed_lock(monkeypatch):
    """Salt and nonce that are known."""
    seams.set(monkeypatch, "encryption.random", lambda n_bytes: bytes(range(n_bytes)))


# ---------------------------------------------------------------- known answers


@pytest.mark.slow
def test_the_key_file_is_as_documented(key, fixed_lock):
    """Decrypted by other means: Python's scrypt, and the cipher by its own interface."""
    data = key.to_bytes(passphrase=PASSPHRASE)
    found = json.loads(data)
    sealed = bytes.fromhex(found.pop("secrets"))
    assert (found.pop("format"), found.pop("version")) == ("privsketch-key", 1)
    assert found["lock"] == {
        "kdf": "scrypt",
        "cipher": "chacha20-poly1305",
        "n": 2**17,
        "r": 8,
        "p": 1,
        "salt": "000102030405060708090a0b0c0d0e0f",
        "nonce": "000102030405060708090a0b",
    }
    salt, nonce = bytes(range(16)), bytes(range(12))
    derived = scrypt(PASSPHRASE.encode(), salt=salt, n=2**17, r=8, p=1, maxmem=2**28, dklen=32)
    header = b"privsketch key v1\0" + canonical_json(found)
    secret = ChaCha20Poly1305(derived).decrypt(nonce, sealed, header)
    assert secret == b'{"ed25519":"%s"}' % SECRET.encode()
    # Bytes are for ever: Ed25519 and the cipher are deterministic.
    assert sealed.hex().endswith("5a3eb0a43fecfa82e381cf824191981c")
    assert found["fingerprint"] == ps.Key.from_bytes(data, passphrase=PASSPHRASE).fingerprint


def test_the_public_file_is_as_documented(key, folder):
    key.public.save("h3.pub")
    found = json.loads((folder / "h3.pub").read_text())
    assert list(found) == ["format", "version", "name", "keys", "fingerprint", "signature"]
    assert (found["format"], found["version"]) == ("privsketch-public-key", 1)
    assert (found["name"], found["keys"]) == ("h3", {"ed25519": PUBLIC})
    assert len(found["fingerprint"]) == 32
    assert ps.PublicKey.load("h3.pub") == key.public == ps.load("h3.pub")


# ---------------------------------------------------------------- locks


def test_what_is_locked_opens_with_its_passphrase_only(key, folder, quick_lock):
    key.save("h3.key", passphrase=PASSPHRASE)
    assert is_locked("h3.key")
    again = ps.Key.load("h3.key", passphrase=PASSPHRASE)
    assert again.public == key.public
    assert again.signature(b"x", "design") == key.signature(b"x", "design")
    for wrong in ("correct hors", "correct horse ", "Correct horse", "", "\udc80"):
        with pytest.raises(FileError, match="wrong passphrase or damaged file"):
            ps.Key.load("h3.key", passphrase=wrong)
    with pytest.raises(ParameterError, match="locked by a passphrase"):
        ps.Key.load("h3.key")


def test_a_lock_is_never_used_twice(key, quick_lock):
    locks = [json.loads(key.to_bytes(passphrase=PASSPHRASE))["lock"] for _ in range(20)]
    assert len({each["salt"] for each in locks}) == len({each["nonce"] for each in locks}) == 20


def test_letters_with_accents_are_one_passphrase(key, quick_lock):
    composed, apart = (unicodedata.normalize(form, "Straßenlärm né") for form in ("NFC", "NFD"))
    assert composed != apart
    ps.Key.from_bytes(key.to_bytes(passphrase=composed), passphrase=apart)


@pytest.mark.parametrize("passphrase", ["", "short", b"correct horse", 12345678])
def test_what_can_be_guessed_is_no_passphrase(key, folder, passphrase):
    with pytest.raises(ParameterError, match="at least 8 characters") as caught:
        key.save("h3.key", passphrase=passphrase)
    assert str(passphrase) not in str(caught.value) or not passphrase
    assert not (folder / "h3.key").exists()


def test_a_key_without_a_passphrase(key, folder):
    key.save("h3.key", passphrase=None)
    assert not is_locked("h3.key")
    assert ps.Key.load("h3.key").public == key.public


@pytest.mark.parametrize(
    "change",
    [
        {"n": 2**20},
        {"n": 16.0},
        {"r": True},
        {"p": 0},
        {"kdf": "none"},
        {"cipher": "rot13"},
        {"x": 1},
    ],
)
def test_a_file_cannot_choose_its_lock(key, quick_lock, change):
    """Neither one that takes all memory, nor one that is quickly tried."""
    whole = json.loads(key.to_bytes(passphrase=PASSPHRASE))
    whole["lock"].update(change)
    data = (json.dumps(whole, indent=2) + "\n").encode()
    with pytest.raises(FileError):
        ps.Key.from_bytes(data, passphrase=PASSPHRASE)


def test_a_weak_lock_is_refused(key, monkeypatch):
    with monkeypatch.context() as patch:
        seams.set(patch, "encryption.SCRYPT", {"n": 16, "r": 1, "p": 1})
        weak = key.to_bytes(passphrase=PASSPHRASE)
    with pytest.raises(FileError, match="unsupported parameters"):
        ps.Key.from_bytes(weak, passphrase=PASSPHRASE)


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize("passphrase", [PASSPHRASE, None])
def test_a_changed_byte_anywhere_is_refused(key, quick_lock, passphrase):
    data = key.to_bytes(passphrase=passphrase)
    for place in range(len(data)):
        for change in (1, 32, 128):
            altered = bytearray(data)
            altered[place] ^= change
            with pytest.raises(FileError):
                ps.Key.from_bytes(bytes(altered), passphrase=passphrase)


def test_a_changed_byte_of_a_public_key_is_refused(key):
    data = key.public.to_bytes()
    for place in range(len(data)):
        for change in (1, 32, 128):
            altered = bytearray(data)
            altered[place] ^= change
            with pytest.raises(FileError):
                ps.PublicKey.from_bytes(bytes(altered))


@pytest.mark.parametrize("passphrase", [PASSPHRASE, None])
def test_fuzzed_key_files_are_refused(key, quick_lock, passphrase):
    """Cut, repeated, exchanged and inserted pieces: our error, never another, never a key."""
    rng = random.Random(0)
    data = key.to_bytes(passphrase=passphrase)
    for _ in range(1500):
        i, j, k = sorted(rng.randrange(len(data) + 1) for _ in range(3))
        junk = rng.choice(
            [b"", b"0", b'"', b"{", b"null", b"1e999", b"\xff", b"[" * 5000, data[i:k]]
        )
        altered = rng.choice([data[:i] + junk + data[j:], data[:j] + data[i:j] + data[k:]])
        if altered != data:
            with pytest.raises(FileError):
                ps.Key.from_bytes(altered, passphrase=passphrase)


def test_fields_of_every_type_are_refused(key, quick_lock):
    whole = json.loads(key.to_bytes(passphrase=None))
    for field in whole:
        for odd in (
            None,
            0,
            1.5,
            True,
            "",
            "00",
            [],
            {},
            {"ed25519": 1},
            {"ed25519": ""},
            {"x": ""},
        ):
            if odd != whole[field]:
                data = (json.dumps({**whole, field: odd}, indent=2) + "\n").encode()
                with pytest.raises(FileError):
                    ps.Key.from_bytes(data, passphrase=PASSPHRASE)


def test_secrets_of_another_key_are_refused(key):
    """A file that says one name and signs with another's secret."""
    other = json.loads(ps.Key.generate("h3").to_bytes(passphrase=None))
    mixed = {**json.loads(key.to_bytes(passphrase=None)), "secrets": other["secrets"]}
    with pytest.raises(FileError, match="not those of its public keys"):
        ps.Key.from_bytes((json.dumps(mixed, indent=2) + "\n").encode())


def test_a_name_is_bound_to_its_key(key):
    """Nobody can pass the key of one site off as that of another."""
    data = key.public.to_bytes().replace(b'"h3"', b'"h4"')
    with pytest.raises(FileError, match="does not bind this name"):
        ps.PublicKey.from_bytes(data)


@pytest.mark.parametrize("name", ["", " h3", "a/b", "a\\b", "a.pub", "a\nb", "x" * 101, None, 3])
def test_names_are_a_line_of_text_and_no_path(name):
    with pytest.raises(ParameterError, match="name"):
        ps.Key.generate(name)


@pytest.mark.parametrize(
    "name",
    [
        "h3\N{VARIATION SELECTOR-16}",
        "h\N{COMBINING GRAPHEME JOINER}3",
        "h3\N{HANGUL FILLER}",
        "\N{BRAILLE PATTERN BLANK}h3",
        "ho\N{COMBINING DIAERESIS}he",  # looks like the composed letter
    ],
)
def test_names_have_no_characters_that_are_not_seen(name):
    with pytest.raises(ParameterError, match="invisible"):
        ps.Key.generate(name)


# ---------------------------------------------------------------- files


def test_only_the_owner_may_read_a_key(key, folder):
    before = os.umask(0)
    try:
        key.save("h3.key", passphrase=None)
    finally:
        os.umask(before)
    assert (folder / "h3.key").stat().st_mode & 0o777 == 0o600
    for mode in (0o644, 0o640, 0o604, 0o660):
        (folder / "h3.key").chmod(mode)
        with pytest.raises(FileError, match="chmod 600"):
            ps.Key.load("h3.key")
        with pytest.raises(FileError, match="chmod 600"):
            is_locked("h3.key")
    (folder / "h3.key").chmod(0o400)
    ps.Key.load("h3.key")


def test_a_key_is_never_overwritten(key, folder):
    key.save("h3.key", passphrase=None)
    before = (folder / "h3.key").read_bytes()
    (folder / "link.key").symlink_to("elsewhere")
    for name in ("h3.key", "link.key"):  # a link to nowhere, too
        with pytest.raises(FileError, match="never overwritten"):
            ps.Key.generate("other").save(name, passphrase=None)
    assert (folder / "h3.key").read_bytes() == before
    assert not (folder / "elsewhere").exists()


def test_half_a_key_is_not_left_behind(key, folder, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match="No space"):
        key.save("h3.key", passphrase=None)
    assert list(folder.iterdir()) == []


def test_what_is_no_plain_file_is_refused(folder, key):
    os.mkfifo("pipe.key")  # opening it must not wait for a writer
    for name in ("pipe.key", ".", "missing.key", "/dev/zero"):
        with pytest.raises(FileError):
            ps.Key.load(name)
        with pytest.raises(FileError):
            ps.PublicKey.load(name)
    key.save("real.key", passphrase=None)
    (folder / "link.key").symlink_to("real.key")  # keys on another disk are fine
    assert ps.Key.load("link.key").public == key.public


# ---------------------------------------------------------------- secrets stay secret


def test_secrets_are_not_shown(key, quick_lock):
    told = [repr(key), str(key), repr(key.public), key.public.describe(), str(vars(type(key)))]
    data = key.to_bytes(passphrase=PASSPHRASE)
    for act in (
        lambda: ps.Key.from_bytes(data, passphrase="not the passphrase"),
        lambda: ps.Key.from_bytes(data[:-9] + b"00000000\n", passphrase=PASSPHRASE),
        lambda: pickle.dumps(key),
        lambda: copy.deepcopy(key),
    ):
        with pytest.raises(ps.PrivsketchError) as caught:
            act()
        told += traceback.format_exception(caught.value)
    for secret in (SECRET, PASSPHRASE, "not the passphrase", repr(bytes.fromhex(SECRET))[2:-1]):
        # Lines of this file stand in tracebacks; what matters is what was said.
        said = [line for line in told if "lambda" not in line]
        assert not any(secret in line for line in said)
    assert SECRET.encode() not in data


def test_without_the_library_the_error_says_what_to_install(folder):
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "import privsketch as ps\n"
        "ps.Key.generate('h3')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "privsketch[signing]" in done.stderr.splitlines()[-1]
