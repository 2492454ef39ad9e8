"""Bounds that are bought: what one person can move, what stands out of the noise, what it costs."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

import privsketch as ps
from privsketch import PrivsketchError
from privsketch.noise import add_noise, laplace_law
from privsketch.tables import FALSE_BOUND, N_CELLS, cells_of, edges_of, persons, threshold_of
from privsketch.tables.survey import bounds
from privsketch.testing import Tape, questions, replay
from tests import seams
from tests.chance import exact_answers

COLUMNS = ["income", "weight"]
FALSE_ALARMS = 1e-6  # of each test of chance


def visits(n_persons=40, seed=0):
    """Rows of persons who have several, in any order, with missing values and both signs."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(1, 9, n_persons)
    person = np.repeat(np.arange(n_persons), rows)
    n_rows = len(person)
    table = pd.DataFrame(
        {
            "patient": person,
            "income": np.exp(rng.normal(10, 2, n_rows)),
            "weight": rng.normal(0, 40, n_rows),
        }
    )
    table.loc[rng.random(n_rows) < 0.2, "income"] = np.nan
    return table.sample(frac=1, random_state=seed).reset_index(drop=True)


@pytest.fixture
def fixed_key(monkeypatch):
    """The guarantee holds for every key; a replay is about one of them."""
    key = persons.Key((3, 5, 7, 11))
    seams.set(monkeypatch, "persons.Key", lambda: key)


# ---------------------------------------------------------------- doublings


def test_cells_hold_their_values():
    rng = np.random.default_rng(0)
    sizes = 2.0 ** np.arange(-60, 60)
    around = [sizes, np.nextafter(sizes, 0), np.nextafter(sizes, np.inf), sizes * rng.random(120)]
    values = np.concatenate([*around, [0.0, 1e300, 5e-324, np.finfo(float).max]])
    values = np.concatenate([values, -values])
    for value, cell in zip(values.tolist(), cells_of(values), strict=True):
        low, high = edges_of(int(cell))
        if abs(Fraction(value)) < Fraction(1, 2**20):
            assert (low, high) == (0.0, 0.0)
        elif value > 0:
            assert low <= value < high
        else:
            assert low < value <= high
    assert cells_of(values).min() == 0
    assert cells_of(values).max() == N_CELLS - 1


def test_cells_follow_one_another():
    edges = [edges_of(cell) for cell in range(N_CELLS)]
    least = 2.0**bounds.LEAST
    for (_, one), (other, _) in itertools.pairwise(edges):
        assert one == other or {abs(one), abs(other)} == {0.0, least}


# ---------------------------------------------------------------- what one person moves


def changed(table, change):
    """A neighbouring table: a person with all their rows is gone, new, or another one."""
    first = table["patient"] == table["patient"].iloc[0]
    new = pd.DataFrame({"patient": 999, "income": [1e9] * 5, "weight": [-1e-3] * 5})
    if change == "removed":
        return table[~first]
    if change == "added":
        return pd.concat([table, new])
    new["patient"] = table["patient"].iloc[0]
    return pd.concat([new, table[~first]])


def as_file(table, folder, kind):
    """A path of a table, or the table in another form."""
    if kind == "frame":
        return table
    if kind == "arrow":
        return pa.Table.from_pandas(table, preserve_index=False)
    path = folder / f"{len(list(folder.iterdir()))}.{kind}"
    if kind == "csv":
        table.to_csv(path, index=False)
    else:
        pq.write_table(pa.Table.from_pandas(table, preserve_index=False), path)
    return path


@pytest.mark.parametrize("kind", ["frame", "csv", "parquet", "arrow"])
@pytest.mark.parametrize(
    ("change", "neighbours", "max_records"),
    [
        ("removed", "add-remove", 1),
        ("added", "add-remove", 1),
        ("added", "add-remove", 3),
        ("removed", "add-remove", 100),
        ("replaced", "replace", 1),
    ],
)
def test_a_person_moves_no_more_than_the_law_declares(
    tmp_path, fixed_key, kind, change, neighbours, max_records
):
    table = visits()

    def run(data):
        return ps.private_bounds(
            as_file(data, tmp_path, kind),
            COLUMNS,
            epsilon=0.5,
            neighbours=neighbours,
            person="patient",
            max_records=max_records,
        )

    found = replay(run, table, changed(table, change))
    assert found.first == found.second
    assert len(found.moves) == 1
    if change == "added":  # rows that are alike move as far as can be
        assert found.largest_move == min(max_records, 5) / max_records
    assert found.first.receipt.unit == "one person (patient)"


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_a_record_moves_no_more_than_the_law_declares(neighbours):
    table = visits()[COLUMNS]
    rest = table if neighbours == "add-remove" else table[1:]
    for new in ([1e300, -1e300], [np.nan, np.nan], [np.inf, 0.0], [1e-5, 3.0]):
        more = pd.concat([rest, pd.DataFrame([new], columns=COLUMNS)])
        found = replay(
            lambda t: ps.private_bounds(t, COLUMNS, epsilon=1.0, neighbours=neighbours), table, more
        )
        assert found.first == found.second
    empty = replay(lambda t: ps.private_bounds(t, COLUMNS, epsilon=1.0), table[:0], table[:1])
    assert empty.first == empty.second


def test_a_rule_that_lets_others_decide_is_caught(monkeypatch, fixed_key):
    """Planted: which row of a person counts depends on how many rows there are in all."""
    right = persons.row_hashes

    def planted(values, key):
        hashes = right(values, key)
        return hashes if len(values) % 2 else ~hashes

    seams.set(monkeypatch, "persons.row_hashes", planted)
    table = visits()
    rows = table["patient"].value_counts()
    other = table[table["patient"] != rows[rows % 2 == 1].index[0]]
    with pytest.raises(AssertionError, match="more than a law declares"):
        replay(lambda t: ps.private_bounds(t, COLUMNS, epsilon=1.0, person="patient"), table, other)


def test_counting_a_record_twice_is_caught(monkeypatch):
    right = bounds._counts
    seams.set(monkeypatch, "bounds.counts", lambda *given: 2 * right(*given))
    table = visits()[COLUMNS].dropna()
    with pytest.raises(AssertionError, match="more than a law declares"):
        replay(lambda t: ps.private_bounds(t, COLUMNS, epsilon=1.0), table, table[1:])


def test_a_cell_that_decides_without_noise_is_caught(monkeypatch):
    """Planted: bounds from exact counts come out differently for a neighbour."""
    right, exact = bounds._counts, []

    def remembered(*given):
        exact.append(right(*given))
        return exact[-1]

    proposed = bounds._proposed
    seams.set(monkeypatch, "bounds.counts", remembered)
    seams.set(
        monkeypatch,
        "bounds.proposed",
        lambda names, noisy, *rest: proposed(names, exact[-1] * 1e9, *rest),
    )
    table = np.full((5, 1), 3.0)
    more = np.concatenate([table, [[1e6]]])
    found = replay(lambda t: ps.private_bounds(t, [0], epsilon=1.0), table, more)
    assert found.first != found.second


# ---------------------------------------------------------------- cost


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1 / 3, 1.0, 2e-5])
@pytest.mark.parametrize("n_columns", [1, 3, 7])
def test_the_receipt_has_the_epsilon_that_was_asked_for(epsilon, n_columns):
    table = np.ones((10, n_columns))
    asked = questions(lambda: ps.private_bounds(table, range(n_columns), epsilon=epsilon))
    found = ps.private_bounds(table, range(n_columns), epsilon=epsilon, source="clinic")
    assert (found.receipt.epsilon, found.receipt.delta) == (epsilon, 0.0)
    assert found.receipt.source == "clinic"
    assert [question.law.n_components for question in asked] == [n_columns * N_CELLS]
    assert asked[0].law.scale == pytest.approx(n_columns / epsilon)
    assert f"epsilon = {epsilon!r}".removesuffix(".0") in found.describe()
    assert "adds to all that follows" in found.describe()


def test_noise_is_for_the_unit():
    table = np.ones((10, 2))

    def scale(**options):
        asked = questions(lambda: ps.private_bounds(table, [0, 1], epsilon=1.0, **options))
        return asked[0].law.scale

    assert scale() == 2
    assert scale(neighbours="replace") == 4
    assert scale(rows_per_person=5) == 10
    found = ps.private_bounds(table, [0], epsilon=1.0, rows_per_person=5)
    assert "taken on trust" in found.describe()


def test_what_cannot_be_asked_costs_nothing(spent, tmp_path):
    table = visits()
    text = table.assign(income="much")
    text.to_csv(tmp_path / "text.csv", index=False)
    for data, columns, options in (
        (table, "income", {}),
        (table, [], {}),
        (table, ["income", "income"], {}),
        (table, ["income", 1], {}),
        (table, [-1], {}),
        (table, [True], {}),
        (table, ["nothing"], {}),
        (table, COLUMNS, {"epsilon": 0}),
        (table, COLUMNS, {"max_outside": 0.7}),
        (table, COLUMNS, {"max_outside": None}),
        (table, COLUMNS, {"person": "nobody"}),
        (table, COLUMNS, {"person": "patient", "max_records": 2, "neighbours": "replace"}),
        (table, COLUMNS, {"rows_per_person": 2, "neighbours": "replace"}),
        (table, COLUMNS, {"person": "patient", "missing_person": "drop", "neighbours": "replace"}),
        (table, COLUMNS, {"neighbours": "others"}),
        (table, COLUMNS, {"source": ""}),
        (text, COLUMNS, {}),
        (tmp_path / "text.csv", COLUMNS, {}),
        (table.to_numpy(), ["income"], {}),
    ):
        with pytest.raises(PrivsketchError):
            ps.private_bounds(data, columns, **{"epsilon": 1.0, **options})
    assert spent == []


def test_a_table_without_records_costs_as_much(spent):
    found = ps.private_bounds(visits()[:0], COLUMNS, epsilon=1.0)
    assert len(spent) == 1
    assert found.columns == ()
    assert found.low == {"income": None, "weight": None}
    assert found.describe().count("the budget is spent all the same") == 2


# ---------------------------------------------------------------- every reader


def test_all_readers_count_the_same(tmp_path):
    table = visits()[COLUMNS]
    forms = {kind: as_file(table, tmp_path, kind) for kind in ("frame", "csv", "parquet", "arrow")}
    forms["parts"] = [table[:50], table[50:]]
    by_place = {"array": table.to_numpy(), "list": table.to_numpy().tolist()}
    counts = {
        name: questions(lambda d=data: ps.private_bounds(d, COLUMNS, epsilon=1.0))[0].values
        for name, data in forms.items()
    }
    for name, data in {**forms, **by_place}.items():
        asked = questions(lambda d=data: ps.private_bounds(d, [1, 0], epsilon=1.0))
        counts[f"{name} by place"] = asked[0].values.reshape(2, -1)[::-1].reshape(-1)
    expected = np.stack(
        [
            np.bincount(cells_of(column[np.isfinite(column)]).astype(int), minlength=N_CELLS)
            for column in table.to_numpy().T
        ]
    ).reshape(-1)
    for name, found in counts.items():
        assert (found == expected).all(), name


# ---------------------------------------------------------------- what stands out


@pytest.mark.parametrize("scale", [0.01, 0.5, 1.0, 20.0, 700.0])
@pytest.mark.parametrize("n_cells", [N_CELLS, 10 * N_CELLS])
def test_the_threshold_follows_from_the_law(scale, n_cells):
    from mpmath import exp, mpf

    ratio = exp(-1 / mpf(scale))

    def all_together(least):
        return n_cells * ratio**least / (1 + ratio)

    threshold = threshold_of(scale, n_cells)
    assert all_together(threshold) <= FALSE_BOUND * (1 + 1e-9)
    assert threshold == 1 or all_together(threshold - 1) > FALSE_BOUND * (1 - 1e-9)


@pytest.mark.parametrize(("factor", "holds"), [(1.0, True), (0.5, False)])
def test_empty_tables_seldom_have_bounds(factor, holds):
    """At most 1 % of releases; a threshold for half of the noise is found out."""
    n_releases, law = 600, laplace_law(1, N_CELLS, 0.5, "add-remove")
    threshold = threshold_of(factor * law.scale, N_CELLS)
    zeros = np.zeros(N_CELLS * n_releases, dtype=np.int64)
    many = laplace_law(1, len(zeros), 0.5, "add-remove")
    noisy, _ = add_noise(zeros, many, source=None)
    n_alarms = int((noisy.reshape(n_releases, N_CELLS) >= threshold).any(axis=1).sum())
    most = stats.binom.isf(FALSE_ALARMS, n_releases, FALSE_BOUND)
    assert bool(n_alarms <= most) is holds


TABLES = {
    "lognormal": lambda rng, n: rng.lognormal(10, 1.5, n),
    "normal": lambda rng, n: rng.normal(75, 12, n),
    "mixed signs": lambda rng, n: rng.normal(0, 3, n) * np.exp(rng.normal(0, 1, n)),
    "with zeros": lambda rng, n: rng.lognormal(3, 1, n) * (rng.random(n) < 0.5),
    "negative": lambda rng, n: -rng.lognormal(0, 1, n),
}


@pytest.mark.parametrize("name", TABLES)
def test_bounds_hold_nearly_all_values(name):
    """A doubling with twice the threshold is missed with a chance below 1e-6, all of them.

    Noise alone may reach the threshold beyond all doublings, in one of 6,000 releases, and then
    there are no bounds: of three releases one has some but for a chance of 1e-11.
    """
    n, epsilon = 40_000, 1.0
    values = TABLES[name](np.random.default_rng(1), n)
    releases = (
        ps.private_bounds(values[:, np.newaxis], [0], epsilon=epsilon, max_outside=0.0)
        for _ in range(3)
    )
    found = next(release for release in releases if release.columns)
    counts = np.bincount(cells_of(values).astype(int), minlength=N_CELLS)
    scale = 1 / epsilon
    seen = found.threshold + scale * math.log(N_CELLS / FALSE_ALARMS)
    (column,) = found.columns
    kept = [edges_of(cell) for cell in np.flatnonzero(counts >= seen)]
    assert column.low <= kept[0][0]
    assert column.high >= kept[-1][1]
    outside = ((values < column.low) | (values > column.high)).mean()
    tiny = (np.abs(values) < 2.0**bounds.LEAST).mean()
    assert outside <= tiny + counts[counts < seen].sum() / n


def test_the_smallest_doublings_are_proposed():
    with exact_answers():
        values = np.array([20.0, 99.0, 40.0] * 100)[:, np.newaxis]
        assert ps.private_bounds(values, [0], epsilon=1.0).columns == (ps.Number("0", 16, 128),)
        signs = np.array([-3.0, 5.0] * 100)[:, np.newaxis]
        assert ps.private_bounds(signs, [0], epsilon=1.0).columns == (ps.Number("0", -4, 8),)
        ages = np.array([0.0, 5.0] * 100)[:, np.newaxis]
        assert ps.private_bounds(ages, [0], epsilon=1.0).columns == (ps.Number("0", 0, 8),)
        zeros = ps.private_bounds(np.zeros((100, 1)), [0], epsilon=1.0).columns
        assert zeros == (ps.Number("0", -(2.0**-20), 2.0**-20),)


def test_a_few_typing_errors_do_not_decide():
    values = np.random.default_rng(0).uniform(20, 100, 50_000)
    values[:30] = 99_999_999
    with exact_answers():  # which reaches the threshold somewhere in one of a hundred releases
        wide = ps.private_bounds(values[:, np.newaxis], [0], epsilon=1.0, max_outside=0.0)
        found = ps.private_bounds(values[:, np.newaxis], [0], epsilon=1.0)
    assert wide.high["0"] == 2.0**27
    assert (found.low["0"], found.high["0"]) == (16.0, 128.0)


def test_what_lies_beyond_all_doublings_is_said():
    with exact_answers():
        found = ps.private_bounds(np.full((500, 1), 1e30), [0], epsilon=1.0)
    assert found.columns == ()
    assert "use other units" in found.describe()


def test_everything_told_is_a_function_of_the_noisy_counts():
    """With the same answers two tables tell the same, whatever they are."""
    tape = Tape(answer=lambda values, law: np.arange(len(values), dtype=np.int64) * 10)
    first = tape.recorded(lambda: ps.private_bounds(np.ones((9, 1)), [0], epsilon=1.0))
    second = tape.replayed(lambda: ps.private_bounds(np.full((70, 1), 1e9), [0], epsilon=1.0))
    assert first.describe() == second.describe()
    assert first.to_json() == second.to_json()
