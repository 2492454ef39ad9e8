"""Which rows of persons count: an oracle that knows one person at a time, whatever the order."""

import itertools

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import privsketch as ps
from privsketch import RecordError
from privsketch.tables import (
    Key,
    RowSelection,
    Spill,
    StoredRows,
    persons,
    row_hashes,
    selected_blocks,
    spill,
    text_hashes,
)
from tests import seams
from tests.oracles import fits
from tests.reading import read_blocks

KEY = Key((1, 2, 3, 4))


def table(n_rows=3000, n_persons=400, seed=0, kind="numbers", dim=3):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n_rows, dim)).round(1)  # with equal rows among them
    numbers = rng.integers(-(2**62), 2**62, n_persons)[rng.integers(0, n_persons, n_rows)]
    if kind == "numbers":
        return values, numbers
    return values, pa.array([f"p{n}" * (1 + n % 4) for n in numbers], pa.string()).cast(
        pa.large_binary()
    )


def whose(ids):
    return ids.tolist() if isinstance(ids, np.ndarray) else ids.to_pylist()


def by_person(values, ids, most, key=KEY):
    """Each person by itself: rows with the smallest hashes of their values."""
    found = []
    for person in dict.fromkeys(whose(ids)):
        rows = values[[one == person for one in whose(ids)]] + 0.0
        hashes = row_hashes(np.ascontiguousarray(rows).view(np.uint64), key)
        found.append(rows[np.argsort(hashes, kind="stable")[:most]])
    return np.concatenate(found)


def in_order(rows):
    return rows[np.lexsort(rows.T[::-1])]


def selected(values, ids, most=1, cut=170, key=KEY, **options):
    rows = RowSelection(values.shape[1], most, key=key, **options)
    for first in range(0, len(values), cut):
        part = slice(first, first + cut)
        rows.append(rows.sort_chunk([(values[part], ids[part])]))
    return np.concatenate([np.empty((0, values.shape[1])), *rows.blocks(1)])


@pytest.mark.parametrize("kind", ["numbers", "texts"])
@pytest.mark.parametrize("most", [1, 2, 7])
@pytest.mark.parametrize("cut", [1, 170, 10_000])
def test_the_rows_of_the_oracle_count(kind, most, cut):
    values, ids = table(200 if cut == 1 else 3000, kind=kind)
    found = selected(values, ids, most, cut)
    assert (in_order(found) == in_order(by_person(values, ids, most))).all()


@pytest.mark.parametrize("kind", ["numbers", "texts"])
def test_nothing_depends_on_memory_or_order(kind):
    values, ids = table(kind=kind)
    plain = selected(values, ids)
    on_disk = selected(values, ids, memory=1000, part_bytes=5000)
    assert (in_order(on_disk) == in_order(plain)).all()
    order = np.random.default_rng(1).permutation(len(values))
    moved = ids[order] if isinstance(ids, np.ndarray) else ids.take(pa.array(order))
    assert (in_order(selected(values[order], moved)) == in_order(plain)).all()


def test_persons_whose_hashes_are_the_same_stay_apart(monkeypatch):
    """Texts are compared, not their hashes."""
    values, ids = table(300, 40, kind="texts")
    wanted = by_person(values, ids, 1)
    seams.set(
        monkeypatch, "persons.text_hashes", lambda texts, key: np.zeros(len(texts), np.uint64)
    )
    assert (in_order(selected(values, ids, cut=50)) == in_order(wanted)).all()


def test_hashes_of_numbers_have_no_collisions():
    """A bijection: the steps undone, one by one."""
    mask = 2**64 - 1
    words = np.random.default_rng(0).integers(0, 2**64, 1000, dtype=np.uint64)
    mixed = persons._mix(words, KEY.word(1))

    def unshift(value, shift):
        found = value
        for _ in range(64 // shift + 1):
            found = value ^ (found >> shift)
        return found

    for before, after in zip(words.tolist(), mixed.tolist(), strict=True):
        value = unshift(after, 31)
        value = unshift(value * pow(int(persons._FACTORS[1]), -1, 2**64) & mask, 27)
        value = unshift(value * pow(int(persons._FACTORS[0]), -1, 2**64) & mask, 30)
        assert (value - KEY.words[1]) & mask == before


def test_every_row_of_a_person_is_as_likely():
    """Chi-squared with 9 degrees of freedom, with a false alarm in 1e7 runs."""
    values = np.arange(10.0)[:, np.newaxis] / 10
    counts = np.zeros(10)
    for _ in range(2000):
        found = selected(values, np.zeros(10, np.int64), key=Key())
        counts[round(found[0, 0] * 10)] += 1
    assert fits(counts, np.full(10, 0.1))
    assert not fits(counts, np.array([0.25, *[0.75 / 9] * 9]))  # the first one more often


def test_hashes_of_texts_see_every_byte_and_the_length():
    texts = [
        "",
        "a",
        "b",
        "ab",
        "ba",
        "a" * 8,
        "a" * 9,
        "a" * 16 + "b",
        "b" + "a" * 16,
        "\0",
        "\0\0",
    ]
    array = pa.array(texts, pa.string()).cast(pa.large_binary())
    hashes = text_hashes(array, KEY)
    assert len(set(hashes.tolist())) == len(texts)
    alone = [text_hashes(array.slice(place, 1), KEY)[0] for place in range(len(texts))]
    assert hashes.tolist() == alone
    assert (text_hashes(array, Key((9, 2, 3, 4))) != hashes).any()


def test_keys_are_drawn_for_each_run():
    assert Key() != Key()
    assert "words" not in repr(Key())


def test_zero_has_one_spelling():
    values = np.array([[0.0], [-0.0], [0.0]])
    found = selected(values, np.array([1, 1, 2]))
    assert len(found) == 2
    hashes = [
        row_hashes((np.array([[zero]]) + 0.0).view(np.uint64), KEY)[0] for zero in (0.0, -0.0)
    ]
    assert hashes[0] == hashes[1]


SCHEMA = ps.Schema([ps.Number("x", 0, 1), ps.Number("y", 0, 1)], missing="drop", person="who")


def frame(who, **more):
    rng = np.random.default_rng(0)
    return pd.DataFrame({"who": who, "x": rng.random(len(who)), "y": rng.random(len(who)), **more})


def records(data, schema=SCHEMA):
    return np.concatenate([np.empty((0, 2)), *read_blocks(data, 2, schema=schema)])


@pytest.mark.parametrize(
    "who",
    [
        [1, 1, 2, 3],
        [1.0, 1.0, 2.0, 3.0],
        ["a", " a ", "b", "c"],
        [2**63 + 5, 2**63 + 5, 7, 2**64 - 1],
        pd.Series(["a", "a", "b", "c"], dtype="category"),
        pd.array([1, 1, 2, 3], dtype="Int64"),
        pd.Series(["a", "a", "b", "c"], dtype=object),
    ],
    ids=["numbers", "floats", "texts", "large", "categories", "own numbers", "objects"],
)
def test_persons_of_many_types(who):
    assert len(records(frame(who))) == 3


@pytest.mark.parametrize(
    "who", [[1, None, 2], ["a", None, "b"], ["a", "  ", "b"], ["a", "NA", "b"]]
)
def test_a_row_without_a_person_is_never_one(who):
    with pytest.raises(RecordError, match="'who': a row names no person"):
        records(frame(who))
    dropping = ps.Schema(SCHEMA.columns, missing="drop", person="who", missing_person="drop")
    assert len(records(frame(who), dropping)) == 2


@pytest.mark.parametrize(
    ("who", "words"),
    [
        ([1.5, 2.0], "neither a whole number"),
        ([True, False], "names persons and is bool"),
        (pd.to_datetime(["2020-01-01", "2020-01-02"]), "names persons and is timestamp"),
    ],
)
def test_what_names_no_person(who, words):
    with pytest.raises(RecordError, match=words):
        records(frame(who))


def test_numbers_here_and_text_there_are_refused(tmp_path):
    frame([1, 2]).to_parquet(tmp_path / "a.parquet")
    frame([1, 2]).to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(RecordError, match="whole numbers in one part and text in another"):
        records([tmp_path / "a.parquet", tmp_path / "b.csv"])


def test_rows_that_are_left_out_never_count():
    """A person whose smallest row has a missing value keeps another one, or none."""
    for seed in range(30):
        data = frame([1, 1, 1, 2], x=[0.1, np.nan, 0.3, np.nan])
        found = records(data)
        assert len(found) == 1
        assert found[0, 0] in ((0.1 - 0.5) / 0.5, (0.3 - 0.5) / 0.5), seed


@pytest.mark.parametrize("n_threads", [1, 3])
def test_batches_in_threads(monkeypatch, n_threads):
    seams.set(monkeypatch, "persons.CHUNK_BYTES", 4000)
    values, ids = table()
    batches = [
        pa.record_batch({"i": pa.array(range(first, min(first + 97, len(values))))})
        for first in range(0, len(values), 97)
    ]
    counts = []

    def encode(batch):
        places = batch.column(0).to_numpy()
        return values[places], ids[places]

    blocks = selected_blocks(
        batches, encode, 3, 1, n_threads=n_threads, progress=counts.append, key=KEY
    )
    found = np.concatenate(list(blocks))
    assert (in_order(found) == in_order(by_person(values, ids, 1))).all()
    assert sum(counts) == len(values)


# ---------------------------------------------------------------- what waits


def test_a_spill_gives_back_what_it_got(monkeypatch):
    for memory in (0, 100, 10**6):
        held = Spill(memory)
        chunks = [np.arange(n, dtype=np.uint64) * 3 for n in (1, 5, 40, 0, 7)]
        for chunk in chunks:
            held.append(chunk)
        for number, chunk in enumerate(chunks):
            whole = held.stretch(number, 0, 8 * len(chunk)).view(np.uint64)
            assert (whole == chunk).all()
        assert (held.stretch(2, 16, 40).view(np.uint64) == chunks[2][2:5]).all()
        held.close()


def test_kept_rows_are_read_again_and_again():
    kept = StoredRows(2, memory=40)
    blocks = [np.random.default_rng(n).random((n, 2)) for n in (3, 0, 10, 1)]
    for block in blocks:
        kept.append(np.asfortranarray(block))
    for _, whole in itertools.product(range(3), [np.concatenate(blocks)]):
        assert (np.concatenate(list(kept)) == whole).all()
    assert kept.n_rows == 14


def test_nothing_of_a_spill_has_a_name(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    held = spill.Spill(0)
    held.append(np.arange(1000))
    assert held._file is not None
    assert list(tmp_path.iterdir()) == []
