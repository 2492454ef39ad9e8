"""A refusal that depends on records is an answer: it is entered, counted and limited."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import privsketch as ps
from privsketch.ledger import Amount, store

STRICT = ps.Schema([ps.Number("x", -1, 1), ps.Flag("flag")])
TOTAL = ps.Schema([ps.Number("x", -1, 1), ps.Flag("flag")], missing="drop", unreadable="missing")
GOOD = pd.DataFrame({"x": [0.5] * 20, "flag": ["yes"] * 20})
ODD = pd.DataFrame({"x": [0.5] * 20, "flag": ["yes"] * 19 + ["perhaps"]})


@pytest.fixture
def book(tmp_path):
    ledger = ps.Ledger.create(tmp_path / "b.ledger")
    ledger.add("visits", epsilon=50.0, delta=1e-3, max_refusals=3)
    return ledger


def design(schema):
    budget = ps.Budget(1.0, 1e-6)
    return ps.Design.plan(n_components=2, domain=schema, budget=budget, n_records=20)


def ask(book, table, schema=STRICT):
    return ps.sketch(table, design(schema), ledger=(book.path, "visits"))


def standing(book):
    (found,) = book.datasets()
    return found.n_refusals, found.n_entries


def test_what_a_record_says_is_counted(book):
    ask(book, GOOD)
    assert standing(book) == (0, 1)
    with (
        pytest.warns(ps.PrivsketchWarning, match="1 such refusals of data set 'visits', and 3"),
        pytest.raises(ps.PrivsketchError, match="neither yes nor no"),
    ):
        ask(book, ODD)
    assert standing(book) == (1, 1)
    assert book.check() == []
    assert book.export()["data_sets"][0]["n_refusals"] == 1
    assert book.total("visits").epsilon == 1


def test_what_is_public_of_a_table_is_not(book, tmp_path):
    wrong = GOOD.rename(columns={"flag": "other"})
    for table in (wrong, tmp_path / "no.csv", GOOD.assign(x=pd.Timestamp("2020-01-01"))):
        with pytest.raises(ps.PrivsketchError):
            ask(book, table)
    assert standing(book) == (0, 0)


def test_a_look_is_not(book, monkeypatch):
    monkeypatch.setenv("PRIVSKETCH_LEDGER", str(book.path))
    assert not ps.check(ODD, STRICT).is_readable
    assert standing(book) == (0, 0)


def test_after_the_last_one_only_what_no_record_can_stop(book):
    for _ in range(3):
        with pytest.raises(ps.PrivsketchError, match="neither yes nor no"):
            ask(book, ODD)
    for table in (GOOD, ODD):  # whatever the table says
        with pytest.raises(ps.PrivsketchError, match="3 releases were refused"):
            ask(book, table)
    assert standing(book) == (3, 0)
    for table in (GOOD, ODD):
        ask(book, table, TOTAL)
    assert standing(book) == (3, 2)


def test_every_way_to_release(book):
    name = (book.path, "visits")
    facts = {"epsilon": 1.0, "delta": 1e-6, "ledger": name}
    ways = [
        lambda: ps.PrivateKMeans(n_clusters=2, domain=STRICT, **facts).fit(ODD),
        lambda: ps.PrivateKMeans(n_clusters=2, domain=ps.Box(-1, 1), **facts).fit(
            np.array([[0.5, "a"]] * 9, dtype=object)
        ),
        lambda: ps.private_bounds(
            pd.DataFrame({"x": [0.5, "abc"]}), ["x"], epsilon=1.0, ledger=name
        ),
    ]
    for count, way in enumerate(ways, 1):
        with pytest.raises(ps.PrivsketchError):
            way()
        assert standing(book) == (count, 0)


def test_released_rows(book):
    projection = ps.Projection.draw(ps.Ball(dim=2, radius=1.0), 2, epsilon=1.0, delta=1e-6)
    rows = np.array([[0.5, np.nan]] * 9)
    book.add("rows", epsilon=50.0, delta=1e-3, neighbours="replace")
    with pytest.raises(ps.PrivsketchError, match="missing"):
        list(projection.releases(rows, ledger=(book.path, "rows")))
    assert book.data_set("rows").n_refusals == 1


def test_a_refusal_that_was_given_a_cost_is_found(book):
    told = {"what": "sketch", "source": None}
    with store.opened(book.path, write=True) as log:
        log.append("refuse", "visits", None, Amount(Fraction(1), Fraction(0), None), told)
    assert book.check() == ["line 2: a refusal has a charge, but must be free"]


def test_lists_and_files_without_a_header(book, tmp_path):
    (tmp_path / "t.csv").write_text("1,2,3\n1,2\n")
    plain = ps.Design.plan(n_components=2, domain=ps.Box(-1, 1, dim=2), budget=ps.Budget(1.0, 1e-6))
    ways = [
        lambda: ps.sketch([[0.5, 0.5], ["a", 1]], plain, ledger=book.path),
        lambda: ps.sketch([[0.5, "yes"], 5], design(STRICT), ledger=book.path),
        lambda: ps.sketch(ps.Table(tmp_path / "t.csv", header=False), plain, ledger=book.path),
    ]
    for count, way in enumerate(ways, 1):
        with pytest.raises(ps.PrivsketchError):
            way()
        assert standing(book)[0] == count


@pytest.mark.parametrize("count", [-1, 1.5, True, "3"])
def test_numbers_of_refusals(book, count):
    with pytest.raises(ps.PrivsketchError, match="max_refusals"):
        book.add("other", epsilon=1.0, max_refusals=count)


def test_none_at_all(book):
    book.add("strict", epsilon=50.0, delta=1e-3, max_refusals=0)
    with pytest.raises(ps.PrivsketchError, match="0 releases were refused"):
        ps.sketch(GOOD, design(STRICT), ledger=(book.path, "strict"))
    ps.sketch(GOOD, design(TOTAL), ledger=(book.path, "strict"))
