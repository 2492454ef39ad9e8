"""The ledger as its holder uses it: limits, quotes, reservations, receipts, exports."""

import copy
import json
import os
import pickle
import shutil
import sqlite3
import warnings
from fractions import Fraction

import pytest

import privsketch as ps
from privsketch import BudgetError, FileError, Ledger, ParameterError
from privsketch.facts import Unit
from privsketch.ledger import Amount, Cost, Marks, store
from tests import seams


@pytest.fixture
def ledger(tmp_path):
    made = ps.Ledger.create(tmp_path / "budget.ledger")
    made.add("visits", epsilon=1.0, delta=1e-6, note="of 2024")
    return made


def test_sums_of_decimals_are_exact(ledger):
    for _ in range(10):
        ledger.reserve("visits", Cost(0.1, 1e-7), what="a tenth")
    total = ledger.total("visits")
    assert (total.epsilon, total.delta) == (1, Fraction(1, 10**6))
    for more in (Cost(Fraction("1e-300")), Cost(0, Fraction("1e-300"))):
        with pytest.raises(BudgetError, match="left are epsilon = 0, delta = 0"):
            ledger.reserve("visits", more, what="more")
    assert len(ledger.entries()) == 10
    ledger.reserve("visits", Cost(0), what="nothing")


def test_a_refusal_says_what_is_left_and_changes_nothing(ledger):
    ledger.reserve("visits", Cost(0.75), what="a sketch")
    before = ledger.export()
    with pytest.raises(BudgetError) as told:
        ledger.reserve("visits", Cost(0.5), what="another")
    assert "left are epsilon = 0.25, delta = 1e-06" in str(told.value)
    assert "nothing was spent" in str(told.value)
    assert ledger.export() == before


def test_quotes_change_nothing_and_say_the_same_as_a_reservation(ledger):
    before = ledger.export()
    quote = ledger.quote("visits", Cost(0.4, 1e-7))
    assert quote.allowed
    assert quote.after.epsilon == Fraction(2, 5)
    assert quote.words == "allowed; epsilon = 0.6, delta = 9e-07 would be left"
    assert not ledger.quote("visits", Cost(1.1)).allowed
    assert not ledger.quote("visits", Cost(0.1, unit=Unit("patient"))).allowed
    assert ledger.export() == before


def test_the_life_of_an_entry(ledger):
    reserved = ledger.reserve("visits", Cost(0.5, 1e-7), what="a sketch", source="north")
    (entry,) = ledger.entries("visits")
    assert (entry.id, entry.state, entry.source) == (reserved.id, "reserved", "north")
    assert entry.receipt is None
    ledger.commit(reserved, receipt={"epsilon": 0.5}, output="north.sketch")
    (entry,) = ledger.entries()
    assert (entry.state, entry.receipt, entry.output) == (
        "committed",
        {"epsilon": 0.5},
        "north.sketch",
    )
    assert entry.time.endswith("+00:00")
    assert entry.time <= entry.time_committed
    assert ledger.total("visits").epsilon == Fraction(1, 2)
    with pytest.raises(ParameterError, match="committed already"):
        ledger.commit(reserved.id)
    with pytest.raises(ParameterError, match="no such entry"):
        ledger.commit("0123")
    assert ledger.check() == []


def test_a_commit_may_cost_less_and_never_more(ledger):
    entry = ledger.reserve("visits", Cost(0.5, 1e-7), what="a run")
    for more in (
        Cost(Fraction("0.5") + Fraction("1e-300"), 1e-7),
        Cost(0.1, 2e-7),
        Cost(0.1, unit=Unit("patient")),
        Cost(0.1, neighbours="replace"),
    ):
        with pytest.raises(BudgetError, match="the reservation stays"):
            ledger.commit(entry, cost=more)
    assert ledger.total("visits").epsilon == Fraction(1, 2)
    ledger.commit(entry, cost=Cost(0.3, 1e-7))
    assert ledger.total("visits").epsilon == Fraction(3, 10)
    assert ledger.entries()[0].cost.epsilon == Fraction(3, 10)
    assert ledger.check() == []


def test_what_was_counted_by_rho_stays_so(tmp_path):
    ledger = Ledger.create(tmp_path / "z", accounting="zcdp")
    ledger.add("visits", epsilon=1, delta=1e-6, without_rho=0.5)
    by_rho = ledger.reserve("visits", Cost(0.4, 1e-7, 0.001), what="")
    with pytest.raises(BudgetError, match="not within"):
        ledger.commit(by_rho, cost=Cost(0.4, 1e-7))
    without = ledger.reserve("visits", Cost(0.4, 1e-7), what="")
    ledger.commit(without, cost=Cost(0.3, 1e-7, 0.1))
    total = ledger.total("visits")
    assert (total.rho, total.epsilon_without_rho) == (Fraction(1, 1000), Fraction(3, 10))
    assert ledger.check() == []


def test_a_ledger_of_zcdp_says_what_it_needs(tmp_path):
    ledger = Ledger.create(tmp_path / "z", accounting="zcdp")
    with pytest.raises(ParameterError, match="needs a delta above 0"):
        ledger.add("visits", epsilon=1)
    ledger.add("visits", epsilon=1, delta=1e-6)
    with pytest.raises(BudgetError, match="without a rho needs a data set with a share apart"):
        ledger.reserve("visits", Cost(0.1, 1e-9), what="masked")
    (found,) = ledger.datasets()
    assert found.left.rho == found.limit.rho


def test_relations_and_units_of_a_data_set_decide(ledger):
    ledger.add("persons", epsilon=1, delta=1e-6, neighbours="replace", person="patient")
    unit = Unit("patient", 3)
    cost = Cost(0.25, 1e-7, neighbours="add-remove", unit=unit)
    ledger.commit(ledger.reserve("persons", cost, what="a sketch"), cost=cost)
    total = ledger.total("persons")
    assert total.epsilon == Fraction(1, 2)
    assert total.delta > 2 * Fraction(1, 10**7)
    with pytest.raises(BudgetError, match="at least twice that"):
        ledger.reserve("persons", Cost(0.3, unit=unit), what="a sketch")
    with pytest.raises(BudgetError, match="nothing was spent"):
        ledger.reserve("persons", Cost(0.1), what="a sketch")
    with pytest.raises(BudgetError, match="public"):
        ledger.reserve("visits", Cost(0.1, neighbours="replace"), what="a sketch")
    assert ledger.check() == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "a\nb"},
        {"name": "x" * 201},
        {"name": 3},
        {"name": "visits"},
        {"epsilon": 0},
        {"epsilon": -1.0},
        {"delta": 1},
        {"neighbours": "swap"},
        {"person": "a\nb"},
        {"without_rho": 0.5},
        {"note": 3},
    ],
)
def test_data_sets_are_stated_well(ledger, wrong):
    before = ledger.export()
    stated = {"name": "new", "epsilon": 1.0, "delta": 1e-6} | wrong
    with pytest.raises(ParameterError):
        ledger.add(stated.pop("name"), **stated)
    assert ledger.export() == before


@pytest.mark.parametrize("accounting", ["basic", "zcdp"])
def test_numbers_that_no_float_holds(tmp_path, accounting):
    ledger = Ledger.create(tmp_path / "a.ledger", accounting)
    large, small = Fraction(10) ** 400, Fraction(1, 10**400)
    with pytest.raises(ParameterError, match=r"1\.00e\+400"):
        ledger.add("x", epsilon=large, delta=1e-6)
    with pytest.raises(ParameterError, match="rho"):
        Cost(1, 1e-6, large)
    if accounting == "zcdp":
        with pytest.raises(ParameterError, match="1e-100"):
            ledger.add("x", epsilon=1, delta=small)
    ledger.add("x", epsilon=1, delta=1e-6)
    for epsilon in (1e-300, small):
        ledger.reserve("x", Cost(epsilon), what="")
    ledger.reserve("x", Cost(small, 1e-9, small), what="")
    (found,) = ledger.datasets()
    assert found.spent.epsilon == Fraction("1e-300") + 2 * small
    assert "e-" in found.limit.spent_text(found.spent)
    assert found.limit.used(found.spent) > 0
    assert ledger.check() == []


def test_unknown_data_sets_are_told_what_to_do(ledger):
    for ask in (ledger.total, ledger.entries):
        with pytest.raises(ParameterError, match="no data set of this name"):
            ask("other")
    with pytest.raises(ParameterError, match="no data set of this name"):
        ledger.reserve("other", Cost(0.1), what="")


def test_receipts_are_json(ledger):
    entry = ledger.reserve("visits", Cost(0.1), what="")
    for wrong in ({"a": float("nan")}, {"a": object()}):
        with pytest.raises(ParameterError, match="receipt"):
            ledger.commit(entry, receipt=wrong)
    assert ledger.entries()[0].state == "reserved"


def test_a_ledger_is_a_path_and_can_be_copied(ledger):
    for same in (pickle.loads(pickle.dumps(ledger)), copy.deepcopy(ledger), Ledger(ledger.path)):
        assert same.export() == ledger.export()
        assert same.key == ledger.key


def test_exports_have_neither_key_nor_marks(ledger):
    marks = Marks(tuple(range(10**15, 10**15 + 256)))
    entry = ledger.reserve("visits", Cost(0.1), what="a sketch", marks=marks)
    ledger.commit(entry, receipt={"epsilon": 0.1})
    text = json.dumps(ledger.export())
    assert ledger.key.hex() not in text
    assert str(10**15) not in text
    assert marks.to_bytes()[:8].hex() not in text
    assert json.loads(text)["entries"][0]["receipt"] == {"epsilon": 0.1}


def test_records_are_recognised_under_another_name(ledger):
    rows = Marks(tuple(range(1000, 1100)))
    ledger.add("new", epsilon=1)
    assert ledger.recognise(rows) == []
    assert ledger.reserve("visits", Cost(0.1), what="", marks=rows).cautions == []
    again = ledger.reserve("visits", Cost(0.1), what="", marks=rows)
    assert again.cautions == []
    other = ledger.reserve("new", Cost(0.1), what="", marks=rows)
    assert [(match.data_set, match.kind) for match in other.matches] == [("visits", "same")]
    assert "these are the records of data set 'visits'" in other.cautions[0]
    assert {match.data_set for match in ledger.recognise(rows)} == {"visits", "new"}


@pytest.mark.parametrize(("n_aliases", "last"), [(4, "1 more data set has"), (40, "37 more data")])
def test_many_names_of_one_table_are_counted(ledger, n_aliases, last):
    rows = Marks(tuple(range(100)))
    for number in range(n_aliases):
        ledger.add(f"alias {number}", epsilon=1)
        ledger.reserve(f"alias {number}", Cost(0.1), what="", marks=rows)
    told = ledger.reserve("visits", Cost(0.1), what="", marks=rows).cautions
    assert len(told) == 4
    assert all("these are the records of data set 'alias " in text for text in told[:3])
    assert told[3].startswith(last)


def test_a_name_with_other_records_than_before_is_told(ledger):
    ledger.reserve("visits", Cost(0.1), what="", marks=Marks(tuple(range(100))))
    unlike = ledger.reserve("visits", Cost(0.1), what="", marks=Marks(tuple(range(200, 300))))
    assert unlike.is_unlike
    assert "is it the right name?" in unlike.cautions[0]
    grown = ledger.reserve("visits", Cost(0.1), what="", marks=Marks(tuple(range(150))))
    assert grown.cautions == []


# --- what the check finds ------------------------------------------------------------------------


def edited(ledger, *statements):
    connection = sqlite3.connect(ledger.path)
    connection.execute("DROP TRIGGER no_change")
    connection.execute("DROP TRIGGER no_removal")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def test_a_head_that_was_kept_shows_a_rollback(ledger, tmp_path):
    """An older copy is a whole ledger: nothing in it says that lines are missing."""
    beginning = Ledger.create(tmp_path / "empty.ledger").head
    heads = [ledger.head]
    older = tmp_path / "older.ledger"
    for n in range(3):
        if n == 2:
            shutil.copy(ledger.path, older)
        ledger.reserve("visits", Cost(0.1), what=str(n))
        heads.append(ledger.head)
    assert len(set(heads)) == 4
    assert ledger.export()["head"] == heads[-1]
    for head in heads:
        assert ledger.check(head=head) == []
    copy = Ledger(older)
    assert copy.check() == []
    assert [bool(copy.check(head=head)) for head in heads] == [False, False, False, True]
    assert "an older copy was restored" in copy.check(head=heads[-1])[0]
    copy.reserve("visits", Cost(0.1), what="2")  # goes on, as if nothing had been
    assert copy.check() == []
    assert copy.check(head=heads[-1])
    assert ledger.check(head=beginning)  # of another ledger
    assert Ledger(tmp_path / "empty.ledger").check(head=beginning) == []
    for bad in ("", "0" * 63, "G" * 64, heads[0].upper(), 7):
        with pytest.raises(ParameterError, match="head"):
            ledger.check(head=bad)


@pytest.mark.skipif(os.name != "posix", reason="modes say something else here")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o666])
def test_a_ledger_that_others_can_read_or_write_is_told_once(ledger, mode):
    ledger.path.chmod(mode)
    with pytest.warns(ps.PrivsketchWarning, match="others than its owner.*chmod 600"):
        Ledger(ledger.path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Ledger(ledger.path)


def test_a_ledger_of_its_owner_alone_is_not_told(ledger):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Ledger(ledger.path)


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("UPDATE log SET epsilon = '1/1000' WHERE number = 2", "its hash does not match"),
        ("UPDATE log SET content = '{}' WHERE number = 3", "cannot be read"),
        ("UPDATE log SET epsilon = '100' WHERE number = 1", "its hash does not match"),
        ("DELETE FROM log WHERE number = 2", "line 2 is missing"),
        ("UPDATE ledger SET accounting = 'zcdp'", "its hash does not match"),
        ("UPDATE ledger SET key = x'00'", "key"),
        ("UPDATE ledger SET key = randomblob(32)", "line 1: its hash does not match"),
        ("INSERT INTO marks VALUES ('visits', x'00')", "marks of impossible length"),
    ],
)
def test_edits_by_hand_are_found(ledger, statement, told):
    ledger.commit(ledger.reserve("visits", Cost(0.5), what="a"), cost=Cost(0.4))
    ledger.reserve("visits", Cost(0.5), what="b")
    assert ledger.check() == []
    edited(ledger, statement)
    assert any(told in problem for problem in ledger.check())


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("UPDATE log SET epsilon = '1/1000' WHERE number = 2", "line 2: its hash does not match"),
        ("UPDATE log SET epsilon = '100' WHERE number = 1", "line 1: its hash does not match"),
        ("DELETE FROM log WHERE number = 2", "line 2 is missing"),
    ],
)
def test_nothing_is_released_under_an_edited_ledger(ledger, statement, told):
    ledger.reserve("visits", Cost(0.5), what="a")
    ledger.reserve("visits", Cost(0.1), what="b")
    edited(ledger, statement)
    for ask in (ledger.quote, lambda *cost: ledger.reserve(*cost, what="c")):
        with pytest.raises(FileError, match=rf"{told}.*not a whole ledger"):
            ask("visits", Cost(0.1))
    assert "c" not in [entry.what for entry in ledger.entries()]


def test_negative_costs_give_nothing_back(ledger):
    """Not even under the right hashes."""
    with store.opened(ledger.path, write=True) as log:
        cost = Amount(Fraction(-5), Fraction(0), None)
        content = {"cost": Cost(5).to_json(), "what": "", "source": None}
        log.append("reserve", "visits", "e" * 16, cost, content)
    assert any("a negative cost" in problem for problem in ledger.check())
    for ask in (ledger.quote, lambda *cost: ledger.reserve(*cost, what="c")):
        with pytest.raises(FileError, match="a negative cost; not a whole ledger"):
            ask("visits", Cost(0.1))


def test_a_ledger_above_its_limit_is_found(ledger, monkeypatch):

    with monkeypatch.context() as patch:
        seams.set(patch, "accounting.Limit.allows", lambda *_: True)
        for _ in range(3):
            ledger.reserve("visits", Cost(0.5), what="")
    assert [problem for problem in ledger.check() if "above its limit" in problem]


def test_lines_stay_as_they_are(ledger):
    connection = sqlite3.connect(ledger.path)
    for statement in ("DELETE FROM log", "UPDATE log SET epsilon = '0'"):
        with pytest.raises(sqlite3.IntegrityError, match="lines stay"):
            connection.execute(statement)
    connection.close()


def test_a_damaged_ledger_is_no_crash(ledger):
    ledger.reserve("visits", Cost(0.5), what="a" * 5000)
    data = bytearray(ledger.path.read_bytes())
    for place in range(4096, len(data), 997):
        data[place] ^= 0x55
    ledger.path.write_bytes(data)
    try:
        found = Ledger(ledger.path).check()
    except FileError:
        return
    assert found
