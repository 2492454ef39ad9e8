"""Rules by which no record stops a release: what is read then, and what is still refused."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import privsketch as ps
from privsketch.tables import RecordFiles
from tests import seams
from tests.privacy import odd_records
from tests.reading import read_blocks

SCHEMA = ps.Schema(
    [ps.Number("x", -1, 1), ps.Category("label", ["red", "blue"], missing="category")],
    missing="center",
    unreadable="missing",
)
RED, BLUE, OTHER, MISSING = np.eye(4) / np.sqrt(2)


def rows_of(data, schema=SCHEMA, columns=None, **said):
    blocks = read_blocks(data, schema.dim, columns, **said, schema=schema)
    return np.concatenate([np.empty((0, schema.dim)), *map(np.asarray, blocks)])


@pytest.mark.parametrize("kind", list(odd_records.READERS))
@pytest.mark.filterwarnings("ignore")
def test_no_odd_record_stops_a_release_or_moves_others(tmp_path, kind):
    for seed in range(120):
        odd_records.tried(kind, seed, tmp_path)


def test_a_planted_stop_is_found(tmp_path, monkeypatch):
    seams.set(monkeypatch, "text.TextFile.require_mendable", lambda file: None)
    seams.set(monkeypatch, "text.MendedLines.fits", lambda *_: True)

    def tried():
        for seed in range(60):
            odd_records.tried("text", seed, tmp_path)

    with pytest.raises((AssertionError, ps.PrivsketchError)):
        tried()


# ---------------------------------------------------------------- text files

CELL = st.sampled_from(
    ["0.5", "1", "-1", "abc", "", "NA", "1e400", "red", "blue", "a b", "\x00", "é"]
)
LINE = st.lists(CELL, max_size=4).map(lambda cells: ",".join(cells) or " ")


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(LINE, max_size=40), st.sampled_from(["\n", "\r\n"]), st.integers(0, 40))
def test_every_line_is_one_record_whatever_stands_beside_it(tmp_path, lines, end, place):
    """Read by itself, behind others, and where the first reading gives up at any place."""
    alone = []
    with pytest.MonkeyPatch.context() as patch:
        seams.set(patch, "memory.BLOCK_VALUES", 8)
        seams.set(patch, "memory.WIDE_ROWS", 1)
        seams.set(patch, "text.BLOCK_BYTES", 64)
        seams.set(patch, "lines.PIECE", 7)
        for line in lines:
            (tmp_path / "one.csv").write_bytes(f"x,label\n{line}{end}".encode())
            (row,) = rows_of(tmp_path / "one.csv")
            alone.append(row)
        whole = "".join(f"{line}{end}" for line in ["x,label", *lines])
        (tmp_path / "all.csv").write_bytes(whole.encode())
        found = rows_of(tmp_path / "all.csv")
    assert (found == np.array(alone).reshape(-1, SCHEMA.dim)).all()


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("0.5,red", (0.5, RED)),
        ("abc,red", (0, RED)),
        ("0.5", (0, MISSING)),
        ("0.5,red,1", (0, MISSING)),
        (",", (0, MISSING)),
        ("0.5,re\rd", (0.5, OTHER)),
        ("0.5,\rred", (0.5, RED)),
        ('0.5,"re\rd"', (0.5, OTHER)),
        ('0.5,"a\n0.9,blue\n"', (0.5, OTHER)),
        ('"0.5","red"', (0.5, RED)),
        ("0.5,\udcff", (0.5, OTHER)),
        ("0.5," + "z" * 1700, (0, MISSING)),
        ('0.5,"' + "z\n" * 800 + '"', (0, MISSING)),
        ("0.5,\ufeffred", (0.5, OTHER)),
    ],
)
def test_what_becomes_of_a_line(tmp_path, monkeypatch, line, wanted):
    seams.set(monkeypatch, "text.BLOCK_BYTES", 256)
    lines = ["x,label", "1,blue", line, "-1,blue", ""]
    (tmp_path / "t.csv").write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    found = rows_of(tmp_path / "t.csv")
    expected = [[1, *BLUE], [wanted[0], *wanted[1]], [-1, *BLUE]]
    assert np.allclose(found, expected, atol=0, rtol=0)


def test_without_a_header_no_record_says_how_many_cells_there_are(tmp_path):
    for first in ("0.5,red,1", "0.5,red", "0.5", "", "z" * 40, "a,b,c,d,e"):
        (tmp_path / "t.csv").write_text(f"{first}\n" + "1,blue,x\n" * 5)
        found = rows_of(tmp_path / "t.csv", columns=[0, 1], header=False)
        assert len(found) == 5 + bool(first)
        assert (found[-5:] == [1, *BLUE]).all()


def test_without_a_header_no_record_says_where_lines_end(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"0.5,a\rb\n" + b"1,blue\n" * 5)
    found = rows_of(tmp_path / "t.csv", columns=[0, 1], header=False)
    assert (found == [[0.5, *OTHER], *[[1, *BLUE]] * 5]).all()


def test_lines_that_end_in_carriage_returns_are_refused_by_the_header(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"x,label\r0.5,red\r1,blue\r")
    with pytest.raises(ps.PrivsketchError, match="line feeds"):
        rows_of(tmp_path / "t.csv")


def test_a_quote_that_never_ends_is_refused_still(tmp_path):
    """Which records it has swallowed cannot be told."""
    for tail in ('0.5,"red\n', '0.5,"red\n1,blue\n' * 3, '0.5,red,"\n1,blue\n'):
        (tmp_path / "t.csv").write_text(f"x,label\n1,blue\n{tail}")
        if tail.count('"') % 2:
            with pytest.raises(ps.PrivsketchError, match="quotes=False"):
                rows_of(tmp_path / "t.csv")
        assert len(rows_of(tmp_path / "t.csv", quotes=False)) == 1 + tail.count("\n")


def test_a_tsv_file_has_to_state_its_quotes(tmp_path):
    (tmp_path / "t.tsv").write_text("x\tlabel\n0.5\tred\n")
    with pytest.raises(ps.PrivsketchError, match="quotes=True"):
        rows_of(tmp_path / "t.tsv")
    for quotes in (True, False):
        assert (rows_of(tmp_path / "t.tsv", quotes=quotes) == [[0.5, *RED]]).all()


def test_a_delimiter_that_may_be_half_of_a_letter_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("x|label\n0.5|red\n")
    with pytest.raises(ps.PrivsketchError, match="encoding='shift_jis'"):
        rows_of(tmp_path / "t.csv", delimiter="|", encoding="shift_jis")


# ---------------------------------------------------------------- types that one record changes


def test_one_odd_number_changes_no_other(tmp_path):
    good = pd.DataFrame({"x": [0.5, -0.5], "label": ["red", "blue"]})
    wanted = rows_of(good)
    for odd in ("abc", 1 + 2j, None, float("inf"), object(), "0.25"):
        frame = pd.concat([good, pd.DataFrame({"x": [odd], "label": ["red"]})])
        found = rows_of(frame)
        assert (found[:2] == wanted).all()
        assert len(found) == 3
        if isinstance(odd, str):
            import polars as pl

            assert (
                rows_of(pl.DataFrame({"x": ["0.5", odd], "label": ["red"] * 2}))[:1] == wanted[:1]
            ).all()


def persons(rule, **columns):
    schema = ps.Schema(
        [ps.Number("x", -1, 1)],
        missing="center",
        person="person",
        missing_person=rule,
        unreadable="missing",
    )
    neighbours = "replace" if rule == "together" else "add-remove"
    frame = pd.DataFrame(columns)
    blocks = read_blocks(frame, 1, schema=schema, neighbours=neighbours)
    return sorted(np.concatenate([np.empty((0, 1)), *map(np.asarray, blocks)])[:, 0])


def test_rows_without_a_readable_person():
    table = {"x": [0.1, 0.2, 0.3, 0.4], "person": ["a", None, object(), "b"]}
    assert persons("drop", **table) == [0.1, 0.4]
    together = persons("together", **table)
    assert len(together) == 3
    assert {0.1, 0.4} < set(together)
    assert persons("drop", x=[0.1, 0.2, 0.3], person=[1.0, 2.5, 1e300]) == [0.1]


def test_digits_that_a_float_has_lost_are_refused_still():
    """One missing person turns whole numbers into floats, and others lose theirs with it."""
    ids = [2**60, 2**60 + 1]
    assert len(persons("drop", x=[0.1, 0.2], person=ids)) == 2
    with pytest.raises(ps.PrivsketchError, match="neither a whole number nor text"):
        persons("drop", x=[0.1, 0.2, 0.3], person=[*ids, None])


def test_persons_are_the_same_in_numbers_and_in_text():
    parts = [
        pd.DataFrame({"x": [0.1, 0.2], "person": [1, 2]}),
        pd.DataFrame({"x": [0.3, 0.4], "person": ["2", "?"]}),
    ]
    schema = ps.Schema(
        [ps.Number("x", -1, 1)],
        missing="drop",
        person="person",
        missing_person="drop",
        unreadable="missing",
    )
    found = np.concatenate([np.asarray(block) for block in read_blocks(parts, 1, schema=schema)])
    assert len(found) == 3


def test_together_needs_a_public_number_of_persons():
    schema = ps.Schema([ps.Number("x", -1, 1)], person="person", missing_person="together")
    with pytest.raises(ps.PrivsketchError, match="together"):
        schema.charged(ps.Budget(1.0, 1e-6, "add-remove"))
    assert schema.charged(ps.Budget(1.0, 1e-6, "replace")).unit.person == "person"


# ---------------------------------------------------------------- without a schema


@pytest.mark.usefixtures("warm_pool")
def test_tables_without_a_schema(tmp_path, make_design, no_noise):
    design = make_design(dim=2)
    good = [[0.5, -0.5], [0.25, 0.125]]
    wanted = ps.sketch([*good, [0.0, 0.0]], design).values
    said = {"missing": "center", "unreadable": "missing"}
    (tmp_path / "t.csv").write_text("x,y\n0.5,-0.5\nabc,\n0.25,0.125\n")
    (tmp_path / "many.csv").write_text("x,y\n0.5,-0.5\n1,2,3\n0.25,0.125\n")
    (tmp_path / "bare.csv").write_text("0.5,-0.5\n?\n0.25,0.125\n")
    tables = [
        tmp_path / "t.csv",
        tmp_path / "many.csv",
        [good[0], ["abc", None], good[1]],
        np.array([good[0], ["abc", None], good[1]], dtype=object),
        np.array([good[0], ["abc", "?"], good[1]]),
        pd.DataFrame({"x": [0.5, "abc", 0.25], "y": [-0.5, object(), 0.125]}),
    ]
    for table, engine in [*((table, "threads") for table in tables), (tables[1], "pool")]:
        found = ps.sketch(ps.Table(table, **said), design, engine=engine)
        assert (found.values == wanted).all(), (type(table), engine)
    bare = ps.sketch(ps.Table(tmp_path / "bare.csv", header=False, columns=[0, 1], **said), design)
    assert (bare.values == wanted).all()
    for table in tables[:1]:
        with pytest.raises(ps.PrivsketchError, match="not numeric"):
            ps.sketch(ps.Table(table, missing="center"), design)


def test_the_schema_says_it_itself(make_design):
    design = ps.Design.plan(
        n_components=2, domain=SCHEMA, budget=ps.Budget(1.0, 1e-6), n_records=100, random_state=0
    )
    with pytest.raises(ps.PrivsketchError, match="the schema says it"):
        ps.sketch(
            ps.Table(pd.DataFrame({"x": [1.0], "label": ["red"]}), unreadable="missing"), design
        )
    assert design.schema.unreadable == "missing"
    again = ps.Design.from_json(design.to_json())
    assert again.fingerprint == design.fingerprint
    assert again.schema == SCHEMA


# ---------------------------------------------------------------- what an attack on this has found


def test_blank_lines_without_a_header_are_the_same_whatever_stands_beside_them(tmp_path):
    for columns, blank in (([0], 3), ([0, 1], 0)):
        counts = []
        for odd in ("0.25,b", "abc,b"):
            (tmp_path / "t.csv").write_text(f"0.5,red\n{odd}\n\n\n\n")
            schema = ps.Schema(
                SCHEMA.columns[: len(columns)], missing="center", unreadable="missing"
            )
            counts.append(len(rows_of(tmp_path / "t.csv", schema, columns, header=False)))
        assert counts == [2 + blank] * 2


@pytest.mark.parametrize("columns", [[-1], [0, -1], ["x", "label"], None])
def test_without_a_header_columns_are_counted_from_the_first(tmp_path, columns):
    (tmp_path / "t.csv").write_text("0.5,red\n0.25,blue\n")
    with pytest.raises(ps.PrivsketchError, match="columns"):
        rows_of(tmp_path / "t.csv", columns=columns, header=False)


def test_one_column_of_labels_and_blank_lines(tmp_path):
    one = ps.Schema([SCHEMA.columns[1]], unreadable="missing")
    strict = ps.Schema([SCHEMA.columns[1]])
    for schema in (one, strict):
        for content in ("\n\nred\n", "\n\n\n", "\n\n\n\n"):
            (tmp_path / "t.csv").write_text(content)
            found = rows_of(tmp_path / "t.csv", schema, [0], header=False)
            assert len(found) == content.count("\n")


def test_a_number_in_a_text_is_one_whatever_type_its_column_has():
    texts = ["0.5", " 0.25", "1e-1", "NA", "1_0", "٣", "abc"]
    wanted = rows_of(pd.DataFrame({"x": texts, "label": ["red"] * 7}))
    for odd in (7, object(), 1 + 2j):
        column = pd.Series([*texts, odd], dtype=object)
        found = rows_of(pd.DataFrame({"x": column, "label": ["red"] * 8}))
        assert (found[:7] == wanted).all()


def test_unknown_bytes_make_no_line_too_long(tmp_path, monkeypatch):
    seams.set(monkeypatch, "text.BLOCK_BYTES", 256)
    for odd in (b"0.25", b"abc"):
        line = b"0.5,red," + b"\xff" * 240
        (tmp_path / "t.csv").write_bytes(b"x,label,note\n" + line + b"\n" + odd + b",red,a\n")
        assert (rows_of(tmp_path / "t.csv")[0] == [0.5, *RED]).all()


def test_a_mark_of_the_byte_order_is_part_of_a_record(tmp_path):
    for lines in (["1,\ufeffred"], ["1,blue", "1,\ufeffred"], ["abc,x", "1,\ufeffred"]):
        for order in (["label", "x"], ["x", "label"]):
            cells = [dict(zip(("x", "label"), line.split(","), strict=True)) for line in lines]
            body = [",".join(cell[name] for name in order) for cell in cells]
            (tmp_path / "t.csv").write_text("\n".join([",".join(order), *body, ""]))
            assert (rows_of(tmp_path / "t.csv")[-1] == [1, *OTHER]).all()


@pytest.mark.parametrize(
    "odd", ["1e1000000", "1e99999999999999999999", "0e1000000000000", "p" * 9000]
)
def test_persons_that_are_numbers_beyond_all_exponents(odd):
    assert persons("drop", x=[0.1, 0.2], person=["a", odd]) == [0.1, 0.2]


def test_long_persons_are_told_apart_by_all_their_letters():
    names = [f"{'x' * 300}{middle}{'y' * 300}" for middle in "abc"]
    table = {"x": [0.1, 0.2, 0.3, 0.4], "person": [*names, names[1]]}
    assert len(persons("drop", **table)) == 3


def test_a_date_beyond_the_first_year():
    day = ps.Date("day", "2000-01-01", "2020-01-01", format="%Y-%m-%d %z")
    schema = ps.Schema([day], missing="center", unreadable="missing")
    for dtype in (object, "str"):
        days = pd.Series(["2010-01-01 +0000", "0001-01-01 +2359"], dtype=dtype)
        assert rows_of(pd.DataFrame({"day": days}), schema)[1, 0] == 0


def test_a_first_line_that_is_very_long(tmp_path, monkeypatch):
    seams.set(monkeypatch, "text.BLOCK_BYTES", 256)
    seams.set(monkeypatch, "text.more", lambda stream, data: data + bytes(stream.read(64)))
    (tmp_path / "t.csv").write_text("0.5," + "z" * 400 + "\n1,blue\n")
    found = rows_of(tmp_path / "t.csv", columns=[0, 1], header=False)
    assert (found == [[0.5, *OTHER], [1, *BLUE]]).all()


@pytest.mark.parametrize("first", ["0.5,red", "0.5", "", "0.5,\x81"])
def test_files_of_rows_that_come_with_others(tmp_path, first):
    (tmp_path / "t.csv").write_bytes(first.encode("latin-1") + b"\n1,blue\n")
    said = {"header": False, "encoding": "cp1252"}
    files = RecordFiles.of(
        ps.Table([tmp_path / "t.csv"], columns=[0], **said),
        ["1"],
        ps.Schema(SCHEMA.columns[:1], missing="center", unreadable="missing"),
    )
    rows = list(files.rows())
    assert rows[-1][0][-1] == 1
    assert rows[-1][1].column(0).to_pylist()[-1] == "blue"


@pytest.mark.parametrize("kind", ["string[python]", "U"])
def test_half_a_letter(kind):
    texts = ["red", "\ud800", "blue"]
    if kind == "U":
        table = np.array([["0.5", each] for each in texts])
    else:
        table = pd.DataFrame({"x": [0.5] * 3, "label": pd.array(texts, dtype=kind)})
    found = rows_of(table)
    assert (found[[0, 2]] == [[0.5, *RED], [0.5, *BLUE]]).all()


def test_rows_of_an_iterable():
    with pytest.raises(ps.PrivsketchError, match="list"):
        rows_of(iter([[0.5, "red"], [0.25, "blue"]]))
