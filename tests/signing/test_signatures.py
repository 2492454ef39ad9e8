"""Signatures of files: known answers, and every way in which one must be refused."""

import json
import os

import pytest

import privsketch as ps
from privsketch import FileError, ParameterError, SignatureError
from privsketch.signing import (
    Signature,
    digit_groups,
    forget,
    is_valid_signature,
    key_fingerprint,
    pin,
    pinned_keys,
    pins_folder,
    resolve_key,
    sign_message,
    signature_path,
    signed_message,
)

# RFC 8032, 7.1, tests 1 to 3 and SHA(abc): secret key, public key, message, signature.
VECTORS = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
        "d25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c"
        "387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc659"
        "4a7c15e9716ed28dc027beceea1ec40a",
    ),
    (
        "833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42",
        "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
        "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd"
        "454d4423643ce80e2a9ac94fa54ca49f",
        "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431e030"
        "3dca179c138ac17ad9bef1177331a704",
    ),
]


@pytest.fixture(autouse=True)
def home(tmp_path_factory, monkeypatch):
    """A folder of pinned keys for this test alone."""
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("PRIVSKETCH_HOME", str(folder))
    return folder


@pytest.fixture(scope="module")
def key():
    return ps.Key.generate("designer")


@pytest.fixture
def study(make_design, folder, key):
    """A folder with a design and its signature."""
    make_design().save("study.json")
    key.sign("study.json")
    return folder


@pytest.mark.parametrize(("secret", "public", "message", "signature"), VECTORS)
def test_known_answers(secret, public, message, signature):
    message = bytes.fromhex(message)
    assert sign_message(bytes.fromhex(secret), message).hex() == signature
    assert ps.Key("test", {"ed25519": bytes.fromhex(secret)}).public.identity.hex() == public
    assert is_valid_signature(bytes.fromhex(public), bytes.fromhex(signature), message)
    assert not is_valid_signature(bytes.fromhex(public), bytes.fromhex(signature), message + b"\0")


def test_a_signature_with_the_order_added_is_refused():
    """S + L would verify by the plain equation: one file would have many signatures."""
    _, public, message, signature = VECTORS[1]
    order = 2**252 + 27742317777372353535851937790883648493
    whole = bytes.fromhex(signature)
    moved = int.from_bytes(whole[32:], "little") + order
    forged = whole[:32] + moved.to_bytes(32, "little")
    assert not is_valid_signature(bytes.fromhex(public), forged, bytes.fromhex(message))


def points_of_small_order():
    """All writings of the eight points whose multiples are at most eight, by their curve."""
    prime = 2**255 - 19
    d = -121665 * pow(121666, -1, prime) % prime

    def added(one, two):
        (x, y), (u, v) = one, two
        product = d * x * u * y * v
        top, side = (x * v + y * u), (y * v + x * u)
        return (
            top * pow(1 + product, -1, prime) % prime,
            side * pow(1 - product, -1, prime) % prime,
        )

    # y of order 8, of the points that double to x^2 = -1, y = 0
    root = pow(2, (prime - 1) // 4, prime)
    points = {(0, 1), (0, prime - 1), (root, 0), (prime - root, 0)}
    for y in SMALL_Y:
        square = (y * y - 1) * pow(d * y * y + 1, -1, prime) % prime
        x = pow(square, (prime + 3) // 8, prime)
        x = x if (x * x - square) % prime == 0 else x * root % prime
        points |= {(x, y), (prime - x, y)}
    for point in points:
        eightfold = point
        for _ in range(3):
            eightfold = added(eightfold, eightfold)
        assert eightfold == (0, 1)
    assert len(points) == 8
    for _, y in points:
        for sign in (0, 2**255):
            for written in (y, y + prime):
                if written < 2**255:
                    yield (written + sign).to_bytes(32, "little")


SMALL_Y = (
    0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826,
    0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7,
)


def test_a_key_under_which_anybody_can_sign_is_none():
    """[S]B = R + [k]A holds for S = 0, R = -[k]A, whatever is signed: the library agrees to it."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    neutral = (1).to_bytes(32, "little")
    forged = neutral + bytes(32)
    accepted = 0
    for point in set(points_of_small_order()):
        for n in range(40):
            message = b"%d" % n
            assert not is_valid_signature(point, forged, message)
            try:
                Ed25519PublicKey.from_public_bytes(point).verify(forged, message)
                accepted += 1
            except (InvalidSignature, ValueError):
                pass
    assert accepted > 40  # else there is nothing to refuse here
    with pytest.raises(ParameterError, match="does not bind"):
        ps.PublicKey("site-1", {"ed25519": neutral}, forged)


def test_what_is_signed_and_how_a_key_is_named():
    """The bytes of docs/format.md, for good."""
    assert signed_message("design", b"{}") == b"privsketch design v1\0{}"
    public = bytes.fromhex(VECTORS[0][1])
    assert key_fingerprint(public) == "b0df6c8606578aa275aa595ddef3f837"
    assert digit_groups("0123456789abcdef") == "0123 4567 89ab cdef"
    for odd in ("", "de sign", "design\0", "Design", "x" * 61):
        with pytest.raises(ParameterError):
            signed_message(odd, b"")


def test_the_signature_file_is_as_documented(folder, make_design):
    make_design().save("study.json")
    key = ps.Key("site é", {"ed25519": bytes.fromhex(VECTORS[0][0])})
    assert key.sign("study.json").name == "study.json.sig"
    found = json.loads((folder / "study.json.sig").read_text())
    assert list(found) == ["format", "version", "kind", "name", "key", "signature"]
    assert (found["format"], found["version"]) == ("privsketch-signature", 1)
    assert (found["kind"], found["name"], found["key"]) == ("design", "site é", VECTORS[0][1])
    message = b"privsketch design v1\0" + (folder / "study.json").read_bytes()
    assert found["signature"] == sign_message(bytes.fromhex(VECTORS[0][0]), message).hex()


def test_every_kind_of_file_is_signed(make_design, make_records, folder, key):
    design = make_design()
    design.save("study.json")
    sketch = ps.sketch(make_records(), design)
    sketch.save("site.sketch")
    ps.learn_kmeans(sketch, 2, n_init=1).save("model.json")
    for name, kind in (("study.json", "design"), ("site.sketch", "sketch")):
        key.sign(name)
        assert ps.verify(name, [key.public], kind=kind) == key.public
    key.sign("model.json")
    assert ps.verify("model.json", [key.public]).name == "designer"
    assert Signature.beside("model.json").kind == "cluster-model"


def test_unsigned_files_and_their_fingerprints_stay_as_they_are(study, key):
    before = (study / "study.json").read_bytes()
    key.sign("study.json", replace=True)
    assert (study / "study.json").read_bytes() == before
    signature_path("study.json").unlink()
    ps.Design.load("study.json")
    with pytest.raises(SignatureError, match="not signed"):
        ps.verify("study.json", [key.public])


# ---------------------------------------------------------------- what is refused


def refused(path, key, **options):
    with pytest.raises(SignatureError) as caught:
        ps.verify(path, [key.public], **options)
    return str(caught.value)


def test_a_changed_byte_anywhere_is_refused(study, key):
    for name in ("study.json", "study.json.sig"):
        file = study / name
        whole = file.read_bytes()
        for place in range(0, len(whole), 1 if name.endswith(".sig") else 37):
            for change in (1, 32):  # 32 turns letters into capitals: other hex, same number
                altered = bytearray(whole)
                altered[place] ^= change
                file.write_bytes(altered)
                assert refused("study.json", key)
        file.write_bytes(whole)
    ps.verify("study.json", [key.public])


def test_bytes_that_are_missing_or_added_are_refused(study, key):
    for name in ("study.json", "study.json.sig"):
        file = study / name
        whole = file.read_bytes()
        for other in (b"", whole[:-1], whole[: len(whole) // 2], whole + b"\n", b" " + whole):
            file.write_bytes(other)
            assert refused("study.json", key)
        file.write_bytes(whole.replace(b"\n", b"\r\n"))
        assert refused("study.json", key)
        file.write_bytes(whole)
    (study / "study.json.sig").write_bytes(b"\0" * 10**6)
    assert "larger" in refused("study.json", key)


@pytest.mark.parametrize(
    "change",
    [
        {"more": 1},
        {"version": 2},
        {"version": 1.0},
        {"version": True},
        {"format": "privsketch-design"},
        {"kind": "sketch"},
        {"kind": "de/sign"},
        {"kind": None},
        {"name": "somebody else"},
        {"name": "a/b"},
        {"name": 7},
        {"key": "00" * 32},
        {"key": "00"},
        {"key": []},
        {"signature": "00" * 64},
        {"signature": ""},
    ],
)
def test_other_fields_are_refused(study, key, change):
    file = signature_path("study.json")
    whole = {**json.loads(file.read_text()), **change}
    file.write_text(json.dumps(whole, indent=2) + "\n")
    assert refused("study.json", key)


def test_a_field_that_occurs_twice_is_refused(study, key):
    file = signature_path("study.json")
    text = file.read_text()
    file.write_text(text.replace('"kind"', '"kind": "sketch",\n  "kind"'))
    assert "JSON" in refused("study.json", key)


def test_a_signature_of_one_kind_is_none_of_another(study, key):
    """The same bytes, signed by the same key, as something else."""
    data = (study / "study.json").read_bytes()
    other = key.signature(data, "sketch")
    assert other.fits(data)
    other.save("study.json.sig")
    assert "not as a design" in refused("study.json", key, kind="design")
    assert "which it is not" in refused("study.json", key)  # whatever it is taken for
    key.sign("study.json", replace=True)
    assert "not as a sketch" in refused("study.json", key, kind="sketch")
    # Whoever has both signatures cannot put one in the place of the other.
    mixed = Signature("design", "designer", other.key, other.signature)
    assert not mixed.fits(data)


def test_another_key_is_refused_and_named_by_its_fingerprint(study, key):
    other = ps.Key.generate("designer")  # the same name
    other.sign("study.json", replace=True)
    assert digit_groups(other.fingerprint) in refused("study.json", key)
    assert ps.verify("study.json", [key.public, other.public]) == other.public
    with pytest.raises(SignatureError):
        ps.verify("study.json", [])


def test_a_signature_of_another_file_is_refused(study, key, make_design):
    make_design(epsilon=2.0).save("other.json")
    os.replace("study.json.sig", "other.json.sig")
    assert "altered" in refused("other.json", key)


def test_files_that_are_not_ours_are_not_signed(study, key):
    (study / "data.csv").write_text("a,b\n1,2\n")
    (study / "plain.json").write_text("{}")
    (study / "schema.json").write_text('{"columns": []}')
    (study / "half.json").write_bytes((study / "study.json").read_bytes()[:-20])
    altered = (study / "study.json").read_text().replace('"epsilon": 1.0', '"epsilon": 9.0')
    (study / "altered.json").write_text(altered)
    key.public.save("designer.pub")
    names = ("data.csv", "plain.json", "schema.json", "half.json", "altered.json", "designer.pub")
    for name in (*names, "study.json.sig", "missing.json"):
        with pytest.raises(FileError):
            key.sign(name)
        assert not signature_path(name).exists()


@pytest.mark.parametrize("kind", ["public-key", "key", "signature"])
def test_a_key_binds_names_to_keys_by_itself_alone(key, kind):
    """Else whoever gets bytes signed could have another name or key bound to it."""
    with pytest.raises(ParameterError, match="kind"):
        key.signature(b"{}", kind)


KINDS_OF_STUDIES = (
    *("card", "study", "ballot", "checked-ballots", "closed-list", "tally", "void-study"),
)


@pytest.mark.parametrize("kind", KINDS_OF_STUDIES)
def test_files_of_sealed_studies_are_signed_where_their_rules_are_kept(key, kind):
    """A study is accepted once for a study key, ever: not by a signature beside that rule."""
    with pytest.raises(ParameterError, match=r"SealedStudy\.accept"):
        key.signature(b"{}", kind)


def test_a_signature_is_not_replaced_by_accident(study):
    before = signature_path("study.json").read_bytes()
    other = ps.Key.generate("other")
    with pytest.raises(FileError, match="exists"):
        other.sign("study.json")
    assert signature_path("study.json").read_bytes() == before


def test_links(study, key):
    """The signature beside the name that was given counts; nothing is written through a link."""
    (study / "elsewhere").mkdir()
    link = study / "elsewhere" / "link.json"
    link.symlink_to(study / "study.json")
    assert "not signed" in refused(link, key)
    signature_path(link).symlink_to(study / "nowhere")
    assert refused(link, key)  # a link to nowhere is no absence
    key.sign(link, replace=True)
    assert not (study / "nowhere").exists()
    assert not signature_path(link).is_symlink()
    assert ps.verify(link, [key.public]) == key.public


# ---------------------------------------------------------------- pins


def test_pinned_keys_are_found_by_name_and_fingerprint(study, key, home):
    with pytest.raises(SignatureError, match="not trusted"):
        ps.verify("study.json")
    file = pin(key.public)
    assert file.parent == home / "trusted" == pins_folder()
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert pinned_keys() == [key.public]
    assert ps.verify("study.json") == key.public
    for text in ("designer", key.fingerprint, digit_groups(key.fingerprint).upper()):
        assert resolve_key(text) == key.public
        assert ps.verify("study.json", [text]) == key.public
    assert forget(digit_groups(key.fingerprint)) == key.public
    assert pinned_keys() == []
    with pytest.raises(ParameterError, match="no key is pinned"):
        forget("designer")


def test_a_name_is_pinned_once(key):
    pin(key.public)
    pin(key.public)
    with pytest.raises(SignatureError, match="another key is pinned as 'designer'"):
        pin(ps.Key.generate("designer").public)
    assert pinned_keys() == [key.public]


@pytest.mark.parametrize(
    "name", ["Designer", "DESIGNER", "de\N{FULLWIDTH LATIN SMALL LETTER S}igner"]
)
def test_a_name_that_reads_like_a_pinned_one_is_refused(key, name):
    pin(key.public)
    with pytest.raises(SignatureError, match="another key is pinned as 'designer'"):
        pin(ps.Key.generate(name).public)


@pytest.mark.parametrize("name", ["site\N{NON-BREAKING HYPHEN}1", "Site\N{EN DASH}1", "site_1"])
def test_hyphens_read_alike(name):
    pin(ps.Key.generate("site-1").public)
    with pytest.raises(SignatureError, match="another key is pinned as 'site-1'"):
        pin(ps.Key.generate(name).public)


def test_a_pinned_key_does_not_change_its_name(key):
    """Its holder can sign any name; a pin that was compared by phone stays what it was."""
    secret = bytes(range(32))
    pin(ps.Key("site-2", {"ed25519": secret}).public)
    with pytest.raises(SignatureError, match="pinned as 'site-2', and now calls itself"):
        pin(ps.Key("designer", {"ed25519": secret}).public)
    assert [one.name for one in pinned_keys()] == ["site-2"]


def test_a_file_does_not_stand_in_for_a_pinned_name(folder, key):
    """Somebody who can write into this folder cannot say who is trusted."""
    ps.Key.generate("stranger").public.save("designer")
    with pytest.raises(ParameterError, match="no key is pinned"):
        resolve_key("designer")
    pin(key.public)
    assert resolve_key("designer") == key.public


def test_a_fingerprint_finds_no_key_by_its_name(key):
    """Else a key of that name would be trusted for one that is not pinned, or no longer."""
    for name in (key.fingerprint, digit_groups(key.fingerprint), "0" * 32):
        with pytest.raises(ParameterError, match="no fingerprint"):
            ps.Key.generate(name)
    pin(key.public)
    assert resolve_key(key.fingerprint) == key.public
    assert forget(key.fingerprint) == key.public
    for text in (key.fingerprint, "0" * 32):
        with pytest.raises(ParameterError, match="no key is pinned"):
            resolve_key(text)


def test_a_part_of_a_fingerprint_is_not_enough(key):
    pin(key.public)
    with pytest.raises(ParameterError):
        resolve_key(key.fingerprint[:16])


def test_a_pin_that_was_exchanged_is_refused(key, home):
    file = pin(key.public)
    file.write_bytes(ps.Key.generate("designer").public.to_bytes())
    with pytest.raises(FileError, match="not the key that was pinned"):
        pinned_keys()


def test_settings_lie_where_users_have_them(monkeypatch, tmp_path):
    monkeypatch.delenv("PRIVSKETCH_HOME")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert pins_folder() == tmp_path / "privsketch" / "trusted"
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")  # to be ignored, says the standard
    monkeypatch.setenv("HOME", "/home/somebody")
    assert str(pins_folder()) == "/home/somebody/.config/privsketch/trusted"
