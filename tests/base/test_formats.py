"""Files come back as they were written, or not at all.

A damaged, foreign or doctored file gives an error of ours: never another exception,
never a sketch that differs from the one that was saved.
"""

import contextlib
import hashlib
import io
import json
import os
import pickle
import re
import socket
import sqlite3
import struct
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import privsketch as ps
from privsketch import AccessError, FileError, ParameterError
from privsketch._base import canonical_json, document, formats
from privsketch.design import plan_design
from privsketch.ledger import store
from tests import oracles, seams
from tests.oracles import resave

PREAMBLE = 16


@pytest.fixture(scope="module")
def design(make_design):
    return make_design(columns=["age", "bmi", "dose"])


@pytest.fixture(scope="module")
def sketch(design, make_records):
    return ps.sketch(make_records(), design, source="site-1")


@pytest.fixture(scope="module")
def merged(design, make_records):
    parts = [ps.sketch(make_records(seed=i), design, source=f"site-{i}") for i in range(3)]
    again = ps.sketch(make_records(seed=0), design, source="site-0")
    return ps.merge([*parts, again], same_records=True)


@pytest.fixture(scope="module")
def model(merged):
    return ps.learn_kmeans(merged, 2, n_init=1)


def same(a, b):
    return (
        a.values.tolist() == b.values.tolist()
        and a.values.dtype == b.values.dtype == np.int64
        and (a.design, a.receipt, a.ids, a.sources, a.exact_count)
        == (b.design, b.receipt, b.ids, b.sources, b.exact_count)
    )


def signed(body):
    return body + hashlib.sha256(body).digest()


def header_of(data):
    (length,) = struct.unpack_from("<I", data, 12)
    return json.loads(data[PREAMBLE : PREAMBLE + length])


def with_header(sketch, change):
    """The bytes of the sketch with its header changed and everything signed anew."""
    data = sketch.to_bytes()
    header = header_of(data)
    (length,) = struct.unpack_from("<I", data, 12)
    change(header)
    text = json.dumps(header).encode()
    payload = data[PREAMBLE + length : -32]
    return signed(data[:12] + struct.pack("<I", len(text)) + text + payload)


# ---------------------------------------------------------------- round trips

DESIGNS = {
    **oracles.DESIGNS,
    "one scale": {"frequency_scale": 0.5},
    "gaussian frequencies": {"frequencies": "gaussian", "frequency_scale": 0.5},
    "ball with a center": {"domain": ps.Ball(dim=3, radius=2.5, center=[0.1, 0.2, 0.3])},
    "box per column": {"domain": ps.Box([0, 1, 2], [1, 3, 5])},
    "named columns": {"columns": ["Größe", "a b", '"'], "n_components": 3},
}


@pytest.mark.parametrize("choices", DESIGNS.values(), ids=DESIGNS)
def test_a_design_comes_back_equal(choices, make_design, tmp_path):
    design = make_design(**choices)
    design.save(tmp_path / "study.json")
    loaded = ps.Design.load(tmp_path / "study.json")
    assert loaded == design
    assert loaded.fingerprint == design.fingerprint


@pytest.mark.parametrize("choices", DESIGNS.values(), ids=DESIGNS)
def test_a_sketch_comes_back_equal(choices, make_design, make_records, tmp_path):
    sketch = ps.sketch(make_records(50), make_design(**choices), source="Zürich")
    sketch.save(tmp_path / "site.sketch")
    assert same(ps.Sketch.load(tmp_path / "site.sketch"), sketch)


def test_a_merged_sketch_comes_back_equal(merged):
    assert same(ps.Sketch.from_bytes(merged.to_bytes()), merged)


@pytest.mark.parametrize("end", [-(2**63), 2**63 - 1])
def test_the_ends_of_int64_come_back(sketch, end):
    extreme = replace(sketch, values=np.full_like(sketch.values, end))
    assert same(ps.Sketch.from_bytes(extreme.to_bytes()), extreme)


def test_a_model_comes_back_equal(model, tmp_path):
    model.save(tmp_path / "model.json")
    loaded = ps.ClusterModel.load(tmp_path / "model.json")
    for name in model.field_names():
        assert np.array_equal(getattr(loaded, name), getattr(model, name)), name


def test_the_bytes_are_those_of_the_documented_layout(sketch):
    data = sketch.to_bytes()
    magic, version, length = struct.unpack_from("<8sII", data)
    assert (magic, version) == (b"\x89privsk\n", 2)
    header = json.loads(data[PREAMBLE : PREAMBLE + length])
    assert header["design"] == json.loads(canonical_json(sketch.design.to_json()))
    payload = data[PREAMBLE + length : -32]
    assert struct.unpack(f"<{len(payload) // 8}q", payload) == tuple(sketch.values.tolist())
    assert hashlib.sha256(data[:-32]).digest() == data[-32:]


def test_a_sketch_file_holds_no_trace_of_the_exact_sums(design, make_records):
    data = ps.sketch(make_records(), design).to_bytes()
    assert set(header_of(data)) == {"design", "receipt", "ids", "sources", "exact_count"}
    assert header_of(data)["exact_count"] is None


# ---------------------------------------------------------------- damaged sketches


def test_every_truncation_is_refused(sketch):
    data = sketch.to_bytes()
    for length in range(len(data)):
        with pytest.raises(ps.PrivsketchError):
            ps.Sketch.from_bytes(data[:length])


def test_every_flipped_byte_is_refused(sketch):
    data = sketch.to_bytes()
    for position in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[position] ^= flip
            with pytest.raises(ps.PrivsketchError):
                ps.Sketch.from_bytes(bytes(damaged))


@pytest.mark.parametrize("length", [1, 8, 32, 1000])
def test_appended_bytes_are_refused(sketch, length):
    with pytest.raises(ps.PrivsketchError, match="corrupted"):
        ps.Sketch.from_bytes(sketch.to_bytes() + bytes(length))


@pytest.mark.parametrize("cut", [1, 7, 8, 16])
def test_a_shortened_payload_is_refused_even_if_signed(sketch, cut):
    with pytest.raises(ps.PrivsketchError, match=r"lengths|do not fit"):
        ps.Sketch.from_bytes(signed(sketch.to_bytes()[: -32 - cut]))


@pytest.mark.parametrize("cut", [8, 80])
def test_a_lengthened_payload_is_refused_even_if_signed(sketch, cut):
    with pytest.raises(ps.PrivsketchError, match="do not fit"):
        ps.Sketch.from_bytes(signed(sketch.to_bytes()[:-32] + bytes(cut)))


@pytest.mark.parametrize("length", [0, 1, 10, 2**31, 2**32 - 1])
def test_a_wrong_header_length_is_refused_even_if_signed(sketch, length):
    data = sketch.to_bytes()
    with pytest.raises(ps.PrivsketchError):
        ps.Sketch.from_bytes(signed(data[:12] + struct.pack("<I", length) + data[16:-32]))


def test_a_newer_version_is_named(sketch):
    data = sketch.to_bytes()
    newer = signed(data[:8] + struct.pack("<I", 3) + data[12:-32])
    with pytest.raises(ps.PrivsketchError, match=r"version 3.*install a newer"):
        ps.Sketch.from_bytes(newer)


def test_the_version_before_the_first_release_is_named(sketch, design, tmp_path):
    data = sketch.to_bytes()
    with pytest.raises(ps.PrivsketchError, match=r"version 1.*Make the file again"):
        ps.Sketch.from_bytes(signed(data[:8] + struct.pack("<I", 1) + data[12:-32]))
    design.save(tmp_path / "study.json")
    text = (tmp_path / "study.json").read_text()
    (tmp_path / "study.json").write_text(text.replace('"version": 2', '"version": 1'))
    with pytest.raises(ps.PrivsketchError, match=r"version 1.*Make the file again"):
        ps.Design.load(tmp_path / "study.json")


def test_version_zero_is_refused(sketch):
    data = sketch.to_bytes()
    with pytest.raises(ps.PrivsketchError, match="version"):
        ps.Sketch.from_bytes(signed(data[:8] + bytes(4) + data[12:-32]))


FOREIGN = {
    "empty": b"",
    "text": b"age,bmi,dose\n1,2,3\n",
    "json": b'{"a": 1}',
    "png": b"\x89PNG\r\n\x1a\n" + bytes(100),
    "magic alone": b"\x89privsk\n",
    "magic and zeros": b"\x89privsk\n" + bytes(200),
    "signed preamble": signed(b"\x89privsk\n" + struct.pack("<II", 1, 0)),
    "signed list": signed(b"\x89privsk\n" + struct.pack("<II", 1, 2) + b"[]"),
    "signed object": signed(b"\x89privsk\n" + struct.pack("<II", 1, 2) + b"{}"),
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("kind", [ps.Sketch, ps.Design, ps.ClusterModel])
def test_a_foreign_file_is_refused_by_name(kind, content, tmp_path):
    path = tmp_path / "foreign.file"
    path.write_bytes(content)
    with pytest.raises(ps.PrivsketchError, match=r"foreign\.file"):
        kind.load(path)


@pytest.mark.parametrize("kind", [ps.Sketch, ps.Design, ps.ClusterModel])
def test_a_missing_file_and_a_folder_are_refused(kind, tmp_path):
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(ps.PrivsketchError):
            kind.load(path)


def test_files_of_one_kind_are_not_read_as_another(design, model, sketch, tmp_path):
    files = {ps.Design: design, ps.ClusterModel: model, ps.Sketch: sketch}
    for kind, thing in files.items():
        thing.save(tmp_path / "file")
        for other in files.keys() - {kind}:
            with pytest.raises(ps.PrivsketchError, match=r"not a|not valid"):
                other.load(tmp_path / "file")


@pytest.mark.parametrize("kind", [ps.Sketch, ps.Design, ps.ClusterModel])
def test_an_oversized_file_is_refused_before_it_is_read(kind, monkeypatch, tmp_path):
    seams.set(monkeypatch, "formats.MAX_JSON_BYTES", 1000)
    seams.set(monkeypatch, "formats.MAX_SKETCH_VALUES", 10)
    path = tmp_path / "large"
    path.write_bytes(bytes(1081))

    class Unread(io.FileIO):
        def read(self, size=-1):
            pytest.fail("was read")

    seams.set(monkeypatch, "formats.open", Unread, raising=False)
    with pytest.raises(ps.PrivsketchError, match="1081 bytes is larger"):
        kind.load(path)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
@example(b"")
def test_random_bytes_never_give_another_exception(data):
    with pytest.raises(ps.PrivsketchError):
        ps.Sketch.from_bytes(data)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["design", "receipt", "ids", "sources", "exact_count", "parts"]), inner
        )
    ),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(header=JSON_VALUES, payload=st.binary(max_size=40))
def test_a_random_signed_header_never_gives_another_exception(header, payload):
    text = json.dumps(header).encode()
    body = b"\x89privsk\n" + struct.pack("<II", 1, len(text)) + text + payload
    with pytest.raises(ps.PrivsketchError):
        ps.Sketch.from_bytes(signed(body))


def paths_of(value, prefix=()):
    """Keys that lead to every value inside nested objects and lists."""
    if prefix:
        yield prefix
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if isinstance(item, dict | list):
            yield from paths_of(item, (*prefix, key))
        else:
            yield (*prefix, key)


def put(header, path, value):
    *way, last = path
    for key in way:
        header = header[key]
    header[last] = value


ODD_VALUES = [None, True, -1, 0, 2**70, 10**400, 1.5, "x", "", [], {}, [[]], ["x"], {"a": 1}]


def test_a_header_with_any_value_replaced_is_refused_or_understood(sketch):
    """Whatever a signed header says, the answer is our error or a sketch that describes itself."""
    original, wrong = header_of(sketch.to_bytes()), []
    for path in paths_of(original):
        for value in ODD_VALUES:
            data = with_header(sketch, lambda h, path=path, value=value: put(h, path, value))
            try:
                loaded = ps.Sketch.from_bytes(data)
                loaded.describe()
                ps.Sketch.from_bytes(loaded.to_bytes())
            except ps.PrivsketchError:
                continue
            except Exception as error:
                wrong.append(f"{path} = {value!r:.20}: {type(error).__name__}")
    assert wrong == []


HEADERS = {
    "unknown field": lambda h: h.update(extra=1),
    "missing field": lambda h: h.pop("ids"),
    "unknown field of the design": lambda h: h["design"].update(extra=1),
    "missing field of the design": lambda h: h["design"].pop("noise"),
    "unknown field of the receipt": lambda h: h["receipt"].update(extra=1),
    "missing field of the receipt": lambda h: h["receipt"].pop("unit"),
    "more features than values": lambda h: h["design"]["frequencies"].update(n_features=64),
    "a scale beyond all numbers": lambda h: h["design"]["frequencies"].update(scales=[0.1, 1e308]),
    "no count but a value for it": lambda h: h["design"].update(count="omitted"),
    "design is a list": lambda h: h.update(design=[]),
    "receipt is text": lambda h: h.update(receipt="cheap"),
    "parts is an object": lambda h: h["receipt"].update(parts={}),
    "epsilon is text": lambda h: h["receipt"].update(epsilon="1"),
    "epsilon of the receipt is negative": lambda h: h["receipt"].update(epsilon=-1),
    "delta is none": lambda h: h["receipt"].update(delta=None),
    "delta is text beside a large epsilon": lambda h: h["receipt"].update(epsilon=200, delta="x"),
    "scale is text": lambda h: h["receipt"].update(scale="large"),
    "mechanism is a number": lambda h: h["receipt"].update(mechanism=1),
    "source of the receipt is a list": lambda h: h["receipt"].update(source=[]),
    "unknown composition": lambda h: h["receipt"].update(composition="free"),
    "other neighbours in the receipt": lambda h: h["receipt"].update(neighbours="replace"),
    "ids are numbers": lambda h: h.update(ids=[1]),
    "ids are text": lambda h: h.update(ids="abc"),
    "no ids": lambda h: h.update(ids=[], sources=[]),
    "more ids than sources": lambda h: h.update(ids=["a", "b"]),
    "an id twice": lambda h: h.update(ids=["a", "a"], sources=["x", "y"]),
    "sources are none": lambda h: h.update(sources=[None]),
    "count is text": lambda h: h.update(exact_count="many"),
    "count is zero": lambda h: h.update(exact_count=0),
    "count is stated though private": lambda h: h.update(exact_count=1000),
}


@pytest.mark.parametrize("change", HEADERS.values(), ids=HEADERS)
def test_a_doctored_header_is_refused_even_if_signed(sketch, change):
    with pytest.raises(ps.PrivsketchError):
        ps.Sketch.from_bytes(with_header(sketch, change))


@pytest.mark.parametrize("count", [None, 0, -5, 1.5, True, "10"])
def test_a_public_count_must_be_a_whole_number(make_design, make_records, count):
    sketch = ps.sketch(make_records(50), make_design(neighbours="replace"))
    with pytest.raises(ps.PrivsketchError):
        ps.Sketch.from_bytes(with_header(sketch, lambda h: h.update(exact_count=count)))


@pytest.mark.mostly_slow(quick_every=4)
@pytest.mark.parametrize("depth", [10, 300, *range(440, 500, 4), 900, 2_000, 200_000])
def test_a_deeply_nested_receipt_is_refused_or_understood(sketch, depth):
    data = sketch.to_bytes()
    header = header_of(data)
    leaf = json.dumps(header["receipt"])
    opening, closing = leaf[: leaf.index("[") + 1], leaf[leaf.index("[") + 1 :]
    header["receipt"] = "RECEIPT"
    receipt = opening * depth + closing.strip() * depth
    text = json.dumps(header).replace('"RECEIPT"', receipt).encode()
    body = data[:12] + struct.pack("<I", len(text)) + text + sketch.values.tobytes()
    try:
        loaded = ps.Sketch.from_bytes(signed(body))
    except ps.PrivsketchError:
        return
    assert ps.Sketch.from_bytes(loaded.to_bytes()).to_bytes() == loaded.to_bytes()


# ---------------------------------------------------------------- designs and models


def test_a_lowered_budget_breaks_the_fingerprint(design, tmp_path):
    path = tmp_path / "study.json"
    design.save(path)
    path.write_text(path.read_text().replace('"epsilon": 1.0', '"epsilon": 9.0'))
    with pytest.raises(ps.PrivsketchError, match=r"study\.json.*altered"):
        ps.Design.load(path)


def test_spaces_do_not_matter(design, tmp_path):
    path = tmp_path / "study.json"
    design.save(path)
    path.write_text(json.dumps(json.loads(path.read_text())))
    assert ps.Design.load(path) == design


def set_in(*way, **values):
    def change(content):
        for key in way:
            content = content[key]
        content.update(values)

    return change


BAD_DESIGNS = {
    "epsilon negative": set_in("budget", epsilon=-1.0),
    "epsilon zero": set_in("budget", epsilon=0),
    "epsilon above 100": set_in("budget", epsilon=100.5),
    "epsilon huge": set_in("budget", epsilon=10**400),
    "epsilon text": set_in("budget", epsilon="1"),
    "epsilon none": set_in("budget", epsilon=None),
    "delta one": set_in("budget", delta=1),
    "delta negative": set_in("budget", delta=-1e-9),
    "gaussian without delta": set_in("budget", delta=0.0),
    "unknown neighbours": set_in("budget", neighbours="none"),
    "neighbours without public count": set_in("budget", neighbours="replace"),
    "budget with another field": set_in("budget", rho=1.0),
    "unknown task": set_in(task="pca"),
    "unknown noise": set_in(noise="uniform"),
    "noise is a list": set_in(noise=[]),
    "unknown count": set_in(count="rounded"),
    "count is a list": set_in(count=[]),
    "unknown map": set_in(feature_map="cubic"),
    "map is a list": set_in(feature_map=[]),
    "dither missing": set_in(feature_map="one-bit"),
    "no components": set_in(n_components=0),
    "too many components": set_in(n_components=1000),
    "components is a fraction": set_in(n_components=2.0),
    "components is a flag": set_in(n_components=True),
    "records is text": set_in(n_records="many"),
    "records is zero": set_in(n_records=0),
    "records is huge": set_in(n_records=10**400),
    "records is a flag": set_in(n_records=True),
    "columns of another width": set_in(columns=["a"]),
    "columns is a number": set_in(columns=3),
    "columns is text": set_in(columns="abc"),
    "columns are numbers": set_in(columns=[1, 2, 3]),
    "a column twice": set_in(columns=["a", "a", "b"]),
    "domain is none": set_in(domain=None),
    "domain of another kind": set_in("domain", kind="sphere"),
    "domain without dim": set_in("domain", dim=None),
    "domain with huge dim": set_in("domain", dim=10**9),
    "domain turned around": set_in("domain", low=4.0, high=-4.0),
    "domain of text": set_in("domain", low="low"),
    "domain with huge bound": set_in("domain", high=10**400),
    "unknown law": set_in("frequencies", law="cauchy"),
    "turn_bits 99": set_in("frequencies", turn_bits=99),
    "turn_bits negative": set_in("frequencies", turn_bits=-1),
    "a billion features": set_in("frequencies", n_features=10**9),
    "no features": set_in("frequencies", n_features=0),
    "features is text": set_in("frequencies", n_features="16"),
    "seed negative": set_in("frequencies", seed=-1),
    "seed too long": set_in("frequencies", seed=2**64),
    "scales turned around": set_in("frequencies", scales=[2.0, 1.0]),
    "scales of text": set_in("frequencies", scales=["a", "b"]),
    "scales of none": set_in("frequencies", scales=[None, None]),
    "three scales": set_in("frequencies", scales=[1.0, 2.0, 3.0]),
    "huge scales": set_in("frequencies", scales=[1.0, 10**400]),
    "checksum is none": set_in("frequencies", checksum=None),
    "another field of the frequencies": set_in("frequencies", extra=1),
    "unknown field": set_in(masks="none"),
    "missing field": lambda content: content.pop("count"),
}


def require_refusal(saved, change, path):
    """A file that was changed is refused by its name."""
    saved.save(path)
    resave(path, change)
    with pytest.raises(ps.PrivsketchError, match=re.escape(path.name)):
        type(saved).load(path)


@pytest.mark.parametrize("change", BAD_DESIGNS.values(), ids=BAD_DESIGNS)
def test_a_design_with_a_bad_parameter_is_refused(change, design, tmp_path):
    require_refusal(design, change, tmp_path / "study.json")


@pytest.mark.parametrize(
    "change",
    [
        set_in("frequencies", checksum="0" * 64),
        set_in("frequencies", seed=8),
        set_in("frequencies", turn_bits=32),
        set_in("frequencies", scales=[0.5, 1.0]),
        set_in("domain", high=5.0),
    ],
    ids=["checksum", "seed", "turn_bits", "scales", "domain"],
)
def test_frequencies_that_do_not_match_their_checksum_are_never_used(
    change, design, make_records, spent, tmp_path
):
    path = tmp_path / "study.json"
    design.save(path)
    resave(path, change)
    with pytest.raises(ps.PrivsketchError, match="frequencies"):
        ps.sketch(make_records(10), ps.Design.load(path))
    assert spent == []


TEXT_DAMAGE = {
    "NaN": ('"epsilon": 1.0', '"epsilon": NaN'),
    "Infinity": ('"epsilon": 1.0', '"epsilon": Infinity'),
    "a number beyond all floats": ('"epsilon": 1.0', '"epsilon": 1e999'),
    "a number of many digits": ('"epsilon": 1.0', '"epsilon": ' + "9" * 10_000),
    "a field twice": ('"epsilon": 1.0', '"epsilon": 9.0, "epsilon": 1.0'),
    "the fingerprint twice": ('"fingerprint"', '"fingerprint": "0", "fingerprint"'),
    "a newer version": ('"version": 2', '"version": 3'),
    "version as text": ('"version": 2', '"version": "2"'),
    "version as flag": ('"version": 2', '"version": true'),
    "another format": ("privsketch-design", "privsketch-plan"),
    "no fingerprint": ('"fingerprint"', '"signature"'),
    "a comment": ("{", "{ // the study\n"),
    "text behind the end": ("\n}\n", "\n}\n{}"),
    "nested lists": ('"epsilon": 1.0', '"epsilon": ' + "[" * 900 + "]" * 900),
    "deeply nested lists": ('"epsilon": 1.0', '"epsilon": ' + "[" * 10**5 + "]" * 10**5),
    "half of a surrogate pair": ('"kmeans"', '"\\ud800"'),
}


@pytest.mark.parametrize(("old", "new"), TEXT_DAMAGE.values(), ids=TEXT_DAMAGE)
def test_a_damaged_design_file_is_refused(old, new, design, tmp_path):
    path = tmp_path / "study.json"
    design.save(path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ps.PrivsketchError, match=r"study\.json"):
        ps.Design.load(path)


@pytest.mark.parametrize("depth", [300, 980, 1000, 3_000])
def test_nesting_of_any_depth_is_refused(design, depth, tmp_path):
    path = tmp_path / "study.json"
    nested = "[" * depth + "]" * depth
    path.write_text(f'{{"format": "privsketch-design", "version": 2, "x": {nested}}}')
    with pytest.raises(ps.PrivsketchError):
        ps.Design.load(path)


def test_every_truncation_of_a_design_is_refused(design, tmp_path):
    path = tmp_path / "study.json"
    design.save(path)
    text = path.read_text().rstrip("\n")
    for length in range(len(text)):
        path.write_text(text[:length])
        with pytest.raises(ps.PrivsketchError):
            ps.Design.load(path)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_another_encoding_is_refused(design, encoding, tmp_path):
    path = tmp_path / "study.json"
    design.save(path)
    path.write_bytes(path.read_text().encode(encoding))
    with pytest.raises(ps.PrivsketchError, match="JSON"):
        ps.Design.load(path)


BAD_MODELS = {
    "unknown field": set_in(extra=1),
    "missing field": lambda content: content.pop("weights"),
    "centers of text": set_in(centers="here"),
    "ragged centers": set_in(centers=[[1.0], [1.0, 2.0]]),
    "one center too few": lambda content: content["centers"].pop(),
    "one weight too few": lambda content: content["weights"].pop(),
    "no clusters": set_in(centers=[], means=[], axis_widths=[], weights=[]),
    "centers in one row": set_in(
        centers=[1.0, 2.0], means=[1.0, 2.0], axis_widths=[1.0, 2.0], weights=[0.5, 0.5]
    ),
    "center is none": lambda content: content["centers"][0].__setitem__(0, None),
    "huge center": lambda content: content["centers"][0].__setitem__(0, 10**400),
    "width is text": set_in(width="wide"),
    "records is none": set_in(n_records=None),
    "expected residual is zero": set_in(expected_residual=0.0),
    "standard error below zero": lambda content: content.update(
        standard_errors=[[-1.0] * len(center) for center in content["centers"]]
    ),
    "decoder is a number": set_in(decoder=3),
    "columns is a number": set_in(columns=3),
    "columns of another width": set_in(columns=["a"]),
    "receipt is none": set_in(receipt=None),
    "epsilon is text": set_in("receipt", epsilon="1"),
    "fingerprint of the design is none": set_in(design_fingerprint=None),
}


@pytest.mark.parametrize("change", BAD_MODELS.values(), ids=BAD_MODELS)
def test_a_model_with_a_bad_field_is_refused(change, model, tmp_path):
    require_refusal(model, change, tmp_path / "model.json")


# ---------------------------------------------------------------- writing


@pytest.fixture(params=["design", "sketch", "model"])
def savable(request):
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_while_writing_leaves_nothing(step, savable, monkeypatch, tmp_path):
    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(ps.PrivsketchError, match=r"out: No space left"):
        savable.save(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_while_writing_keeps_the_old_file(step, savable, monkeypatch, tmp_path):
    (tmp_path / "out").write_text("old")

    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(ps.PrivsketchError):
        savable.save(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out").read_text() == "old"


def test_an_interruption_while_writing_leaves_nothing(savable, monkeypatch, tmp_path):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        savable.save(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_saving_replaces_an_old_file(savable, tmp_path):
    (tmp_path / "out").write_text("old")
    savable.save(tmp_path / "out")
    type(savable).load(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


BAD_PLACES = {
    "missing folder": lambda folder: folder / "nowhere" / "out",
    "folder": lambda folder: folder,
    "below a file": lambda folder: folder / "file" / "out",
    "name too long": lambda folder: folder / ("x" * 300),
    "empty name": lambda folder: "",
}


@pytest.mark.parametrize("place", BAD_PLACES.values(), ids=BAD_PLACES)
def test_a_place_that_cannot_be_written_is_refused(place, savable, tmp_path):
    (tmp_path / "file").write_text("old")
    with pytest.raises(ps.PrivsketchError):
        savable.save(place(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_ledger_is_never_replaced(savable, tmp_path):
    """Nor what a link to it is called; another database is nobody's ledger."""
    ledger = ps.Ledger.create(tmp_path / "l.ledger")
    ledger.add("visits", epsilon=1)
    (tmp_path / "link").symlink_to(ledger.path)
    for path in (ledger.path, tmp_path / "link"):
        with pytest.raises(AccessError, match="is a ledger, which is never replaced"):
            savable.save(path)
    assert ledger.check() == []
    with contextlib.closing(sqlite3.connect(tmp_path / "other")) as other:
        other.execute("CREATE TABLE t (x)")
    savable.save(tmp_path / "other")
    assert type(savable).load(tmp_path / "other") is not None


def test_looking_for_a_ledger_waits_for_threads_at_work(design, tmp_path):
    """To close a file drops the locks that the process has on it, those of other threads too."""
    ledger = ps.Ledger.create(tmp_path / "l.ledger")
    inside, order = threading.Event(), []

    def hold():
        with store.opened(ledger.path, write=True):
            inside.set()
            time.sleep(0.2)
            order.append("ledger")

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    with pytest.raises(AccessError):
        design.save(ledger.path)
    order.append("file")
    thread.join()
    assert order == ["ledger", "file"]


def test_a_name_of_the_longest_length_can_be_written(design, tmp_path):
    longest = os.pathconf(tmp_path, "PC_NAME_MAX")
    design.save(tmp_path / ("x" * longest))
    assert ps.Design.load(tmp_path / ("x" * longest)) == design


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 1e-3},
        {"delta": 0.5},
        {"scale": 1.0},
        {"scale": None},
        {"source": "zzz"},
        {"neighbours": "replace"},
    ],
)
def test_a_receipt_that_understates_its_design_is_refused(change, make_design, make_records):
    from privsketch._base import pack_sketch, unpack_sketch

    sketch = ps.sketch(make_records(), make_design(), source="a")
    header, values = unpack_sketch(sketch.to_bytes(), "x")
    header["receipt"] |= change
    with pytest.raises(ps.PrivsketchError, match="receipt"):
        ps.Sketch.from_bytes(pack_sketch(header, values))


def test_a_merged_receipt_accounts_for_every_release(make_design, make_records):
    from privsketch._base import pack_sketch, unpack_sketch

    parts = [ps.sketch(make_records(), make_design(), source=name) for name in "abb"]
    total = ps.merge(parts, same_records=True)
    assert ps.Sketch.from_bytes(total.to_bytes()).receipt == total.receipt
    header, values = unpack_sketch(total.to_bytes(), "x")
    for change in ({"parts": []}, {"parts": header["receipt"]["parts"][:1]}, {"epsilon": 1.0}):
        altered = {**header, "receipt": header["receipt"] | change}
        with pytest.raises(ps.PrivsketchError, match="receipt"):
            ps.Sketch.from_bytes(pack_sketch(altered, values))


def test_the_total_of_a_split_receipt_is_checked(make_design, make_records):
    from privsketch._base import pack_sketch, unpack_sketch

    design = make_design(delta=0.0, noise="laplace")
    sketch = ps.sketch(make_records(), design, source="a")
    assert len(sketch.receipt.parts) == 2
    assert ps.Sketch.from_bytes(sketch.to_bytes()).receipt == sketch.receipt
    header, values = unpack_sketch(sketch.to_bytes(), "x")
    header["receipt"]["epsilon"] /= 2
    with pytest.raises(ps.PrivsketchError, match="receipt"):
        ps.Sketch.from_bytes(pack_sketch(header, values))


@pytest.mark.parametrize("where", ["whole", "part"])
@pytest.mark.parametrize(
    "change",
    [
        {"neighbours": "replace"},
        {"unit": "one household"},
        {"composition": "parallel"},
        {"assumption": "nobody looks"},
        {"mechanism": "no noise at all"},
        {"sampler": "a coin"},
        {"sampler": "INSECURE: replaced for a test"},
    ],
)
def test_receipts_say_what_a_release_writes_and_nothing_else(
    change, where, make_design, make_records
):
    from privsketch._base import pack_sketch, unpack_sketch

    design = make_design(delta=0.0, noise="laplace")
    header, values = unpack_sketch(ps.sketch(make_records(), design).to_bytes(), "sketch")
    altered = header["receipt"] if where == "whole" else header["receipt"]["parts"][0]
    altered |= change
    with pytest.raises(ps.PrivsketchError, match="receipt"):
        ps.Sketch.from_bytes(pack_sketch(header, values))


@pytest.mark.parametrize("name", ["centers", "weights"])
def test_a_model_without_its_centers_is_refused(name, tmp_path):
    domain, budget = ps.Box(-1, 1, dim=2), ps.Budget(1.0)
    design = ps.Design.plan(n_components=2, domain=domain, budget=budget)
    model = ps.learn_kmeans(ps.sketch(np.zeros((2000, 2)), design), 2)
    model.save(tmp_path / "right.json")
    found = json.loads((tmp_path / "right.json").read_text())
    content = {k: v for k, v in found.items() if k not in ("format", "version", "fingerprint")}
    (tmp_path / "model.json").write_bytes(document("cluster-model", {**content, name: None}))
    with pytest.raises(FileError, match=r"model\.json"):
        ps.ClusterModel.load(tmp_path / "model.json")


def test_a_design_that_was_not_drawn_has_no_file(tmp_path):
    study = {"n_components": 2, "domain": ps.Box(-1, 1, dim=2), "budget": ps.Budget(1.0)}
    with pytest.raises(ParameterError, match="not drawn"):
        plan_design(**study, drawn=False).save(tmp_path / "study.json")
    content = ps.Design.plan(**study).to_json()
    content["frequencies"]["checksum"] = ""
    (tmp_path / "study.json").write_bytes(document("design", content))
    with pytest.raises(FileError, match="not drawn"):
        ps.load(tmp_path / "study.json")


def test_what_people_wrote_is_refused_with_its_line(tmp_path):
    path = tmp_path / "schema.json"
    path.write_text('{"columns": [\n  {"kind": "flag" "name": "smoker"}\n]}')
    with pytest.raises(FileError, match=r"not valid JSON at line 2, column 19;"):
        ps.Schema.load(path)


def test_files_of_ours_that_are_told_elsewhere_are_called_what_they_are(tmp_path):
    pytest.importorskip("cryptography")
    key = ps.Key.generate("site-1")
    key.save(tmp_path / "site-1.key", passphrase=None)
    ps.Design.plan(
        n_components=2, domain=ps.Box(-1, 1, dim=2), budget=ps.Budget(1.0), random_state=0
    ).save(tmp_path / "study.json")
    told = {
        tmp_path / "site-1.key": "a secret key",
        key.sign(tmp_path / "study.json"): "a signature; privsketch key verify",
        ps.Ledger.create(tmp_path / "budget.ledger").path: "privsketch ledger show",
    }
    for path, words in told.items():
        with pytest.raises(FileError, match=words):
            ps.load(path)


def test_an_error_keeps_no_table():
    table = np.zeros((50, 2))
    for value in (table, table.tolist(), "x" * 1000, {"a": 1}):
        error = ParameterError("n_clusters", value, "expected an integer")
        assert error.value == type(value).__name__
        assert len(str(error)) < 100
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
    for value in (None, 3, 0.5, "auto", (1.0, 2.0), np.int64(3)):
        assert ParameterError("n_clusters", value, "expected an integer").value is value


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="no such device")
def test_what_has_no_end_is_refused(folder, monkeypatch):
    """A link in a shared folder may lead anywhere; its size says 0."""
    seams.set(monkeypatch, "formats.MAX_JSON_BYTES", 1000)
    seams.set(monkeypatch, "formats.MAX_SKETCH_VALUES", 1000)
    os.symlink("/dev/zero", "site-1.sketch")
    with pytest.raises(AccessError, match="not a plain file"):
        ps.load("site-1.sketch")
    with open("/dev/zero", "rb") as stream, pytest.raises(FileError, match="larger than any"):
        formats.read_file(f"/dev/fd/{stream.fileno()}")
    (folder / "large").write_bytes(bytes(9001))
    with pytest.raises(FileError, match="larger than any"):
        ps.load("large")


def test_what_is_no_plain_file_is_refused_at_once(folder):
    """Opening a pipe waits for somebody who writes; whoever shares a folder can put one there."""
    os.mkfifo("pipe")
    os.symlink("pipe", "link")
    os.symlink("/dev/stdin", "standard")  # of this process, under a name that anybody can give
    os.mkdir("inside")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        for name in ("pipe", "link", "inside", "socket", "/dev/null", "gone", "nul\0"):
            with pytest.raises(AccessError):
                formats.read_file(name)
            assert formats.beginning_of(name, 8) == b""
    reading, writing = os.pipe()
    try:
        before = os.dup(0)
        os.dup2(reading, 0)
        with pytest.raises(AccessError, match="not a plain file"):
            formats.read_file("standard")
    finally:
        os.dup2(before, 0)
        for handle in (before, reading, writing):
            os.close(handle)
    (folder / "file").write_bytes(b"bytes")
    os.symlink("file", "to-file")
    assert formats.read_file("to-file") == b"bytes"
    assert formats.beginning_of("to-file", 3) == b"byt"


def test_a_pipe_that_was_handed_over_is_read(folder, sketch):
    """As shells do it for `<(command)`; more than fits into a pipe at once."""
    data = sketch.to_bytes() + bytes(300_000)
    reading, writing = os.pipe()

    def write():
        with open(writing, "wb") as stream:
            stream.write(data)

    writer = threading.Thread(target=write)
    with open(reading, "rb"):
        writer.start()
        found = formats.read_file(f"/dev/fd/{reading}")
        writer.join()
    assert found == data
    n_open = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    for name in ("gone", ".", "/dev/null"):
        with pytest.raises(AccessError):
            formats.read_file(name)
    if n_open:
        assert len(os.listdir("/proc/self/fd")) == n_open


UNPRINTABLE = ["\x1b[2J", "\x9b31m", "one\nscale       0", "\u202egnp", "\u2028", "\x7f"]


def with_text(content, path, text):
    """A copy of nested values with another text at a path."""
    first, *rest = path
    copied = dict(content) if isinstance(content, dict) else list(content)
    copied[first] = with_text(copied[first], rest, text) if rest else text
    return copied


@pytest.mark.parametrize("text", UNPRINTABLE)
def test_texts_of_strangers_that_steer_a_terminal_are_refused(sketch, text, tmp_path):
    """Receipts and reasons of a file are shown as they are: a line break would forge a line."""
    header, values = formats.unpack_sketch(sketch.to_bytes(), "sketch")
    changed = with_text(header, ["receipt", "calibration"], text)
    with pytest.raises(FileError, match="cannot be printed"):
        ps.Sketch.from_bytes(formats.pack_sketch(changed, values))
    model = ps.learn_kmeans(sketch, 2, n_init=1)
    content = formats.document_content(model.to_bytes(), "cluster-model", "model")
    for path in (["receipt", "mechanism"], ["concerns"], ["receipt", "unit"]):
        changed = with_text(content, path, [text] if path == ["concerns"] else text)
        with pytest.raises(FileError, match="cannot be printed"):
            ps.ClusterModel.from_bytes(document("cluster-model", changed))
    with pytest.raises(FileError, match="not valid JSON"):
        formats.parse_json(json.dumps({text: 1}).encode(), "schema")


def test_names_of_columns_come_from_tables_and_are_shown_as_a_line(make_records, tmp_path):
    """A head of a spreadsheet may have line breaks; a model that was paid for can be read again."""
    names = ["income\nin EUR", "\x1b[2J", "c\u00a0d"]
    design = plan_design(
        n_components=2, domain=ps.Box(-1, 1, dim=3), budget=ps.Budget(1.0), columns=names,
        n_features=20, random_state=0,
    )  # fmt: skip
    again = ps.Design.from_bytes(design.to_bytes())
    assert list(again.columns) == names
    model = ps.learn_kmeans(ps.sketch(make_records(), again), 2, n_init=1)
    again = ps.ClusterModel.from_bytes(model.to_bytes())
    assert list(again.columns) == names
    for told in (design.describe(), again.describe()):
        assert all(c.isprintable() or c in "\n\u00a0" for c in told)
        assert "income" in told
