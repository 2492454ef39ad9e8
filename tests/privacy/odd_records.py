"""Tables with one odd record, for every reader: nothing that it says may stop a release.

`python -m tests.privacy.odd_records 100000` tries as many, each in a table of its own. Of every
table all other records must be read as they are, and of the odd one at most one record.
"""

import datetime
import decimal
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import privsketch as ps
from tests.reading import read_blocks
from tests.workbooks import Fault, Formula, write_workbook

GOOD = [(f"{i / 8}", f"2020-01-0{i + 1}", "yes", "red", f"p{i}") for i in range(4)]
NAMES = ("x", "day", "flag", "label", "person")
_LETTERS = [*"0123456789.-+eE,;|:/ \"'\\#=NnAaYy%", "\t", "\r", "\x00", "\x0b", "\x85", "é", "語"]
_WORDS = [
    *("", " ", "NA", "nan", "inf", "-inf", "1e999", "0x1F", "1,5", "1.234.567", "true", "maybe"),
    *("2020-02-30", "31.12.2020", "9999-99-99", "2020-01-01T25:00", "p9 ", "\ufffd", "\ufeff"),
    *("9" * 400, "1e-999", "١٢", "½", "−1", "None", "<NA>", "#N/A", "2020-01-01 00:00:00+99:99"),
]


def schema(neighbours, *, person):
    """Rules by which no record stops a release."""
    is_private = neighbours == "add-remove"
    rule, label = ("drop", "drop") if is_private else ("center", "category")
    return ps.Schema(
        [
            ps.Number("x", -1, 1),
            ps.Date("day", "2019-01-01", "2021-01-01"),
            ps.Flag("flag", missing=label),
            ps.Category("label", ["red", "blue"], missing=label),
        ],
        missing=rule,
        person="person" if person else None,
        missing_person="drop" if is_private else "together",
        unreadable="missing",
    )


def odd_text(rng):
    """A word that is hard to read, or letters in any order."""
    if rng.random() < 0.5:
        return rng.choice(_WORDS)
    return "".join(rng.choice(_LETTERS) for _ in range(rng.randint(0, 12)))


def odd_cells(rng):
    """Cells of one record, of which some are odd; at times too many or too few."""
    cells = [*rng.choice(GOOD)[:4], f"odd {rng.randint(0, 9)}"]
    for place in rng.sample(range(5), rng.randint(1, 5)):
        cells[place] = odd_text(rng)
    if rng.random() < 0.25:
        cells = cells[: rng.randint(0, 4)] if rng.random() < 0.5 else [*cells, odd_text(rng)]
    return cells


def placed(rng, odd):
    """The good records, and the odd one anywhere among them."""
    rows = [list(row) for row in GOOD]
    rows.insert(rng.randint(0, len(rows)), odd)
    return rows


def quoted(cell, delimiter):
    needs = any(letter in cell for letter in f'"{delimiter}\n\r')
    return '"' + cell.replace('"', '""') + '"' if needs else cell


# ---------------------------------------------------------------- readers


def text_file(rng, folder):
    """Lines of a text file: quoted by rule, or bytes as they come where there are no quotes."""
    delimiter, has_quotes = rng.choice([",", ";", "\t"]), rng.random() < 0.5
    encoding = rng.choice(["utf-8", "utf-8", "latin-1", "utf-16", "shift_jis"])
    header = rng.random() < 0.7
    odd = odd_cells(rng)
    if has_quotes and rng.random() < 0.3:
        odd[rng.randrange(len(odd) or 1) : 0] = [f'a\n"{delimiter}\r\nb']
    if odd in ([], [""]):  # a blank line is no record
        odd = [" "]

    def line(cells):
        return delimiter.join(quoted(c, delimiter) if has_quotes else c for c in cells)

    lines = [line(row) for row in placed(rng, odd)]
    if header:
        lines.insert(0, delimiter.join(NAMES))
    end = rng.choice(["\n", "\r\n"]) if header else "\n"
    content = "".join(f"{each}{end}" for each in lines).encode(encoding, "replace")
    if encoding in ("utf-8", "latin-1") and rng.random() < 0.3:  # bytes that are no text
        place = content.find(b"odd")
        if place >= 0:
            damage = bytes(rng.choice([0x80, 0xC3, 0xE2, 0xFF]) for _ in range(rng.randint(1, 3)))
            content = content[:place] + damage + content[place:]
    name = rng.choice(["t.csv", "t.tsv"])
    (folder / name).write_bytes(content)
    said = {"delimiter": delimiter, "quotes": has_quotes, "encoding": encoding}
    return folder / name, {**said, "header": None if header else False}


def sheet(rng, folder):
    cells = [
        *(None, True, 5, 0.5, 1e300, "", "text", "2020-01-01", Fault("#N/A"), Formula("A1+1")),
        *(datetime.date(2020, 1, 1), odd_text(rng)),
    ]
    odd = [rng.choice(cells) for _ in range(rng.choice([5, 5, 5, 3, 7]))]
    odd = [_in_xml(cell) for cell in odd]
    rows = [[float(x), *rest] if x else [] for x, *rest in placed(rng, ["", *odd[1:]])]
    place = next(i for i, row in enumerate(rows) if not row)
    rows[place] = odd
    write_workbook(folder / "t.xlsx", {"a": [list(NAMES), *rows]})
    return folder / "t.xlsx", {}


def _in_xml(cell):
    if isinstance(cell, str) and not isinstance(cell, Fault | Formula):
        return "".join(letter for letter in cell if letter.isprintable() and letter < "\ufffe")
    return cell


class Stubborn:
    """An object that fails whatever is asked of it."""

    def __float__(self):
        raise RuntimeError("no")

    __str__ = __repr__ = __hash__ = __bool__ = __float__


def objects(rng):
    """A record of Python objects."""
    cells = [
        *(None, object(), Stubborn(), [1, 2], {"a": 1}, b"bytes", "text", "\ud800", 1 + 2j),
        *(10**400, decimal.Decimal("1e999"), decimal.Decimal("sNaN"), np.nan, True, pd.NaT, pd.NA),
        *(datetime.date(1, 1, 1), datetime.datetime(9999, 12, 31), datetime.timedelta(1)),
        *(np.datetime64("NaT"), np.timedelta64(5, "s"), np.int64(7), np.float32(2), 2.5),
        odd_text(rng),
    ]
    return [rng.choice(cells) for _ in range(5)]


def pandas_frame(rng, folder):
    columns = zip(*placed(rng, objects(rng)), strict=True)
    return pd.DataFrame(
        {name: pd.Series(list(c), dtype=object) for name, c in zip(NAMES, columns, strict=True)}
    ).assign(x=lambda t: t.x.map(_as_float)), {}


def _as_float(cell):
    return float(cell) if isinstance(cell, str) and cell in [row[0] for row in GOOD] else cell


def polars_frame(rng, folder):
    odd = (odd_cells(rng) + [None] * 5)[:5]
    columns = zip(*placed(rng, odd), strict=True)
    return pl.DataFrame(dict(zip(NAMES, map(list, columns), strict=True)), strict=False), {}


def parquet(rng, folder):
    odd = [cell.encode() + rng.choice([b"", b"\xff", b"\xc3"]) for cell in odd_cells(rng)]
    odd = (odd + [None] * 5)[:5]
    rows = [
        [c if c is None or isinstance(c, bytes) else c.encode() for c in r]
        for r in placed(rng, odd)
    ]
    arrays = [pa.array(list(column), pa.binary()) for column in zip(*rows, strict=True)]
    texts = [pa.Array.from_buffers(pa.string(), len(a), a.buffers(), a.null_count) for a in arrays]
    pq.write_table(pa.table(texts, names=list(NAMES)), folder / "t.parquet")
    return folder / "t.parquet", {}


def arrow_stream(rng, folder):
    path, said = parquet(rng, folder)
    return pq.read_table(path), said


def numbers(rng, folder):
    """Typed columns; text is where there are labels."""
    odd = rng.choice([np.inf, -np.inf, np.nan, 1e300, -0.0, 5e-324])
    rows = placed(rng, [odd, *odd_cells(rng)[1:4], "odd"][:5])
    rows = [(row + [None] * 5)[:5] for row in rows]
    x, *texts = zip(*rows, strict=True)
    table = pa.table([pa.array([float(v) for v in x])] + [pa.array(t) for t in texts], NAMES)
    return table, {}


def nested_list(rng, folder):
    odd = rng.choice(
        [objects(rng)[:4], objects(rng)[:3], [], [*objects(rng), 1], None, 5, {"a": 1}]
    )
    rows = [[*row[:4]] for row in GOOD]
    rows = [[float(row[0]), *row[1:]] for row in rows]
    rows.insert(rng.randint(1, len(rows)), odd)  # the first says that it is a list of rows
    return rows, {}


READERS = {
    "text": text_file,
    "sheet": sheet,
    "pandas": pandas_frame,
    "polars": polars_frame,
    "parquet": parquet,
    "arrow": arrow_stream,
    "numbers": numbers,
    "list": nested_list,
}


def tried(kind, seed, folder):
    """Read one table with an odd record; an error of any kind is a fault."""
    rng = random.Random(seed)
    neighbours, person = rng.choice(["add-remove", "replace"]), rng.random() < 0.5
    person = person and kind != "list"
    data, said = READERS[kind](rng, folder)
    asked = schema(neighbours, person=person)
    if kind == "sheet" and neighbours == "replace":
        said["n_records"] = len(GOOD) + 1
    columns = None
    if said.get("header") is False:
        columns = [0, 1, 2, 3, *([4] if person else [])]
    given = {"schema": asked, "neighbours": neighbours}
    found = _records(read_blocks(data, asked.dim, columns, **said, **given))
    table = [[float(x), *rest] for x, *rest in GOOD]
    frame = pd.DataFrame(table, columns=list(NAMES))
    wanted = _records(read_blocks(frame, asked.dim, schema=asked, neighbours=neighbours))
    more = found - wanted
    if wanted - found:
        raise AssertionError(f"{kind} {seed}: another record was lost")
    least = 1 if neighbours == "replace" else 0
    if not least <= more.total() <= 1:
        raise AssertionError(f"{kind} {seed}: {more.total()} records of one")


def _records(blocks):
    return Counter(row.tobytes() for block in blocks for row in np.asarray(block, np.float64) + 0.0)


def main(count):
    start, kinds = time.monotonic(), list(READERS)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            tried(kinds[number % len(kinds)], number, Path(folder))
            if number % 10_000 == 9_999:
                print(f"{number + 1} tables, {time.monotonic() - start:.0f} s", flush=True)
    print(f"{count} odd records over {len(kinds)} kinds of tables: none stopped, none moved others")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
