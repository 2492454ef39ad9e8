"""Every way to release has an entry before noise is drawn; the same records are recognised."""

import os
import subprocess
import sys
import textwrap
import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone

import privsketch as ps
from privsketch import BudgetError, ParameterError
from privsketch.clustering import clustered
from privsketch.clustering.baselines import lloyd
from privsketch.facts import exact
from privsketch.ledger import named_data_set, writing_to
from privsketch.noise import add_noise, laplace_law, watch_noise
from privsketch.projection import release_files
from privsketch.tables import RecordFiles
from tests import seams

_exact_sampler = seams.get("mechanism.exact_sampler")
_insecure_sampler = seams.get("mechanism.insecure_sampler")


pytestmark = pytest.mark.usefixtures("warm_pool")
BOX = ps.Box(-1, 1, dim=3)
RECORDS = np.random.default_rng(1).uniform(-1, 1, (3000, 3))
LIMIT = {"epsilon": 1000, "delta": 1e-2}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.ledger"


@pytest.fixture(params=["basic", "zcdp"])
def ledger(path, request):
    book = ps.Ledger.create(path, request.param)
    share = {"without_rho": 0.5} if request.param == "zcdp" else {}
    book.add("records", **LIMIT, **share)
    book.add("replaced", **LIMIT, **share, neighbours="replace")
    return book


def design(**choices):
    budget = choices.pop("budget", ps.Budget(1.0, 1e-6))
    return ps.Design.plan(
        n_components=2, domain=BOX, budget=budget, random_state=0, n_features=30, **choices
    )


def kmeans(method, delta=1e-6, **options):
    def release(ledger):
        return (
            ps.PrivateKMeans(
                2,
                epsilon=1.0,
                delta=delta,
                domain=BOX,
                method=method,
                n_records=3000,
                random_state=0,
                ledger=ledger,
                **options,
            )
            .fit(RECORDS)
            .receipt_
        )

    return release


def sketched(**choices):
    def release(ledger):
        return ps.sketch(RECORDS, design(**choices), source="here", ledger=ledger).receipt

    return release


WAYS = {
    "sketch": sketched(),
    "pure sketch": sketched(budget=ps.Budget(1.0, 0.0)),
    "laplace sketch": sketched(budget=ps.Budget(1.0, 0.0), noise="laplace"),
    "masked sketch": sketched(masks=ps.Masks(records=0.5)),
    "pool": lambda ledger: (
        ps.sketch([RECORDS], design(), ledger=ledger, engine=ps.engines.Pool(n_workers=1)).receipt
    ),
    "bounds": lambda ledger: ps.private_bounds(RECORDS, [0], epsilon=0.5, ledger=ledger).receipt,
    **{
        f"{name}, delta": kmeans(name)
        for name in ("sketch", "pipeline", "lloyd", "grid", "partition-tree")
    },
    **{f"{name}, pure": kmeans(name, 0.0) for name in ("pipeline", "lloyd", "sample-aggregate")},
    "k-variates": kmeans("k-variates"),
    "no count": lambda ledger: (
        ps.PrivateKMeans(2, epsilon=1, delta=1e-6, domain=BOX, method="pipeline", ledger=ledger)
        .fit(RECORDS)
        .receipt_
    ),
    "medians": lambda ledger: (
        ps.PrivateKMedians(2, epsilon=1, delta=1e-6, domain=BOX, n_records=3000, ledger=ledger)
        .fit(RECORDS)
        .receipt_
    ),
    "mixture": lambda ledger: (
        ps.PrivateGaussianMixture(2, epsilon=1, delta=1e-6, domain=BOX, ledger=ledger)
        .fit(RECORDS)
        .receipt_
    ),
    "pca": lambda ledger: (
        ps.PrivatePCA(2, epsilon=1, delta=1e-6, domain=ps.Ball(3, 2.0), ledger=ledger)
        .fit(RECORDS)
        .receipt_
    ),
    "regression": lambda ledger: (
        ps.PrivateLinearRegression(epsilon=1, delta=1e-6, domain=BOX, target=(-1, 1), ledger=ledger)
        .fit(RECORDS, RECORDS[:, 0])
        .receipt_
    ),
    "pure classifier": lambda ledger: (
        ps.PrivateLogisticRegression(
            epsilon=1, delta=0, domain=BOX, classes=[False, True], ledger=ledger
        )
        .fit(RECORDS, RECORDS[:, 0] > 0)
        .receipt_
    ),
}


def projected(ledger):
    transformer = ps.PrivateProjection(2, epsilon=1, delta=1e-6, domain=BOX, ledger=ledger)
    transformer.fit_transform(RECORDS)
    return transformer.receipt_


REPLACED = {
    "rows": projected,
    "sketch of a public number": sketched(budget=ps.Budget(1.0, 1e-6, "replace")),
}


@pytest.mark.parametrize("name", WAYS | REPLACED)
def test_a_release_is_entered_with_its_receipt(ledger, name):
    data_set = "replaced" if name in REPLACED else "records"
    receipt = (WAYS | REPLACED)[name]((ledger.path, data_set))
    (entry,) = ledger.entries()
    assert entry.state == "committed"
    assert entry.data_set == data_set
    assert entry.cost.epsilon == exact(receipt.epsilon) == entry.charged.epsilon
    assert entry.cost.delta == exact(receipt.delta) == entry.charged.delta
    stored = dict(entry.receipt)
    assert (stored["epsilon"], stored["delta"]) == (receipt.epsilon, receipt.delta)
    if ledger.accounting == "zcdp":
        assert entry.charged.rho == (None if receipt.rho is None else exact(receipt.rho))
    assert ledger.check() == []


PURE = {
    "cube": lambda epsilon, ledger: ps.sketch(
        RECORDS, design(budget=ps.Budget(epsilon)), ledger=ledger
    ),
    "laplace": lambda epsilon, ledger: ps.sketch(
        RECORDS,
        design(budget=ps.Budget(epsilon), noise="laplace", count="omitted"),
        ledger=ledger,
    ),
    "bounds": lambda epsilon, ledger: ps.private_bounds(
        RECORDS, [0], epsilon=epsilon, ledger=ledger
    ),
}


@pytest.mark.parametrize("epsilon", [1 / 3, 0.1234567890123, 0.5**0.5])
@pytest.mark.parametrize("name", PURE)
def test_pure_releases_fit_what_was_reserved_for_them(ledger, name, epsilon):
    # The rho of their receipt is rounded up to a float; what was reserved is exact.
    PURE[name](epsilon, (ledger.path, "records"))
    (entry,) = ledger.entries()
    assert entry.state == "committed"
    assert entry.charged.rho == exact(epsilon) ** 2 / 2


@pytest.mark.parametrize("noise", ["laplace", "cube"])
def test_pure_noise_of_a_budget_with_delta_has_a_rho(path, noise):
    ledger = ps.Ledger.create(path, "zcdp")
    ledger.add("records", **LIMIT)  # nothing is kept apart for what has no rho
    ps.sketch(RECORDS, design(noise=noise), ledger=(path, "records"))
    (entry,) = ledger.entries()
    assert (entry.charged.epsilon, entry.charged.delta) == (1, 0)
    assert entry.charged.rho <= Fraction(1, 2)


@pytest.mark.parametrize("name", WAYS | REPLACED)
def test_nothing_is_drawn_before_it_is_reserved(path, name):
    ledger = ps.Ledger.create(path)
    relation = "replace" if name in REPLACED else "add-remove"
    ledger.add("records", **LIMIT, neighbours=relation)
    counts = []

    def sampler(values, law):
        counts.append(len(ledger.entries()))
        return _exact_sampler(values, law)

    with _insecure_sampler(sampler):
        (WAYS | REPLACED)[name]((path, "records"))
    assert set(counts) == {1}


@pytest.mark.parametrize("name", WAYS | REPLACED)
def test_above_the_limit_nothing_is_drawn(path, name):
    ledger = ps.Ledger.create(path)
    relation = "replace" if name in REPLACED else "add-remove"
    ledger.add("records", epsilon=0.4999, delta=1e-2, neighbours=relation)
    drawn = []
    with watch_noise(lambda: drawn.append(1)), pytest.raises(BudgetError, match="left are"):
        (WAYS | REPLACED)[name]((path, "records"))
    assert not drawn
    assert ledger.entries() == []


@pytest.mark.parametrize("name", WAYS | REPLACED)
def test_the_environment_names_a_ledger_for_everything(path, name, monkeypatch):
    ledger = ps.Ledger.create(path)
    relation = "replace" if name in REPLACED else "add-remove"
    ledger.add("records", **LIMIT, neighbours=relation)
    monkeypatch.setenv("PRIVSKETCH_LEDGER", str(path))
    (WAYS | REPLACED)[name](None)
    assert [entry.state for entry in ledger.entries()] == ["committed"]


def test_noise_outside_of_an_entry_is_refused(path, monkeypatch):
    monkeypatch.setenv("PRIVSKETCH_LEDGER", str(path))
    law = laplace_law(1, 1, 1.0, "add-remove")
    with pytest.raises(BudgetError, match="no entry"):
        add_noise(np.zeros(1, dtype=np.int64), law, source=None)
    projection = ps.Projection.draw(BOX, 2, epsilon=1.0, delta=0.0)
    with pytest.raises(ps.PrivsketchError, match="no such ledger"):
        next(projection.releases([RECORDS]))


def test_which_data_set(path, monkeypatch):
    ledger = ps.Ledger.create(path)
    ledger.add("one", **LIMIT)
    ps.sketch(RECORDS, design(), ledger=path)  # the only one
    ledger.add("two", **LIMIT)
    with pytest.raises(ps.PrivsketchError, match="2 data sets"):
        ps.sketch(RECORDS, design(), ledger=str(path))
    monkeypatch.setenv("PRIVSKETCH_LEDGER", str(path))
    monkeypatch.setenv("PRIVSKETCH_DATASET", "two")
    ps.sketch(RECORDS, design())
    ps.sketch(RECORDS, design(), ledger=(None, "one"))
    assert [entry.data_set for entry in ledger.entries()] == ["one", "two", "one"]
    for wrong in ((path, "three"), (path,), 7, (path, 7)):
        with pytest.raises(ps.PrivsketchError, match=r"ledger|name"):
            ps.sketch(RECORDS, design(), ledger=wrong)
    monkeypatch.delenv("PRIVSKETCH_LEDGER")
    with pytest.raises(ps.PrivsketchError, match="without a ledger"):
        ps.sketch(RECORDS, design(), ledger=(None, "one"))


def test_clones_keep_to_the_same_ledger(path):
    ledger = ps.Ledger.create(path)
    ledger.add("records", **LIMIT)
    model = ps.PrivateKMeans(
        2, epsilon=1, delta=1e-6, domain=BOX, n_records=3000, ledger=(path, "records")
    )
    clone(model).fit(RECORDS)
    clone(model).fit(RECORDS)
    assert ledger.total("records").epsilon == 2


def test_a_run_that_fails_after_the_first_noise_counts(path):
    ledger = ps.Ledger.create(path)
    ledger.add("records", **LIMIT)
    count = []

    def third():
        count.append(1)
        if len(count) == 3:
            raise KeyboardInterrupt

    with watch_noise(third), pytest.raises(KeyboardInterrupt):
        kmeans("lloyd")((path, "records"))
    (entry,) = ledger.entries()
    assert (entry.state, entry.receipt) == ("reserved", None)
    assert ledger.total("records").epsilon == 1


@pytest.mark.parametrize("name", ["sketch", "pipeline, delta", "rows"])
def test_a_ledger_that_is_lost_after_the_noise_leaves_the_result(path, name):
    ledger = ps.Ledger.create(path)
    ledger.add("records", **LIMIT, neighbours="replace")
    kept = path.with_suffix(".kept")

    def loses(values, law):
        if path.exists():
            path.rename(kept)
        return _exact_sampler(values, law)

    with (
        _insecure_sampler(loses),
        pytest.warns(ps.PrivsketchWarning, match="counts as spent, but its receipt is not"),
    ):
        receipt = (WAYS | REPLACED)[name]((path, "records"))
    assert receipt.epsilon == 1
    kept.rename(path)
    (entry,) = ledger.entries()
    assert entry.state == "reserved"
    assert entry.cost.epsilon == 1


def test_a_ledger_stays_the_same_wherever_the_process_goes(tmp_path, monkeypatch):
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        ps.Ledger.create(tmp_path / folder / "budget.ledger").add("records", **LIMIT)
    monkeypatch.chdir(tmp_path / "here")

    def blocks():
        monkeypatch.chdir(tmp_path / "there")
        yield RECORDS

    ps.sketch(blocks(), design(), ledger=("budget.ledger", "records"))
    spent = [
        ps.Ledger(tmp_path / folder / "budget.ledger").total("records").epsilon
        for folder in ("here", "there")
    ]
    assert spent == [1, 0]


def test_an_error_before_the_noise_costs_nothing(path):
    ledger = ps.Ledger.create(path)
    ledger.add("records", **LIMIT)
    with pytest.raises(ps.PrivsketchError, match="missing"):
        ps.sketch(np.full((5, 3), np.nan), design(), ledger=(path, "records"))
    assert ledger.entries() == []


def test_steps_of_a_run_have_no_entries_of_their_own(path):
    ledger = ps.Ledger.create(path)
    ledger.add("records", **LIMIT)
    receipt = kmeans("pipeline")((path, "records"))
    assert len(receipt.parts) > 1
    assert len(ledger.entries()) == 1


OTHERS = {
    "sketch": lambda **where: ps.sketch(RECORDS, design(), **where),
    "bounds": lambda **where: ps.private_bounds(RECORDS, [0], epsilon=1.0, **where),
    "estimator": lambda **where: ps.PrivateKMeans(
        2, epsilon=1, delta=1e-6, domain=BOX, n_records=3000, **where
    ).fit(RECORDS),
    "rows": lambda **where: list(
        ps.Projection.draw(BOX, 2, epsilon=1.0, delta=1e-6).releases([RECORDS], **where)
    ),
}


@pytest.mark.parametrize("environment", [False, True])
@pytest.mark.parametrize("name", OTHERS)
def test_what_callbacks_release_has_an_entry_of_its_own(path, name, environment, monkeypatch):
    # People's code runs while records are read: none of it is a step of that release.
    ledger = ps.Ledger.create(path)
    ledger.add("outer", **LIMIT)
    ledger.add("inner", **LIMIT, neighbours="replace")
    if environment:
        monkeypatch.setenv("PRIVSKETCH_LEDGER", str(path))
    where = {"ledger": (None if environment else path, "inner")}

    def blocks():
        OTHERS[name](**where)
        # The outer one has drawn nothing: nothing of it is reserved.
        assert [entry.data_set for entry in ledger.entries()] == ["inner"]
        yield RECORDS

    ps.sketch(blocks(), design(), ledger=(path, "outer"))
    ps.sketch(
        RECORDS,
        design(),
        ledger=(path, "outer"),
        progress=lambda count: OTHERS[name](**where) if count else None,
        engine=ps.engines.Threads(n_threads=1),
    )
    counts = {one.name: (one.n_entries, one.n_open) for one in ledger.datasets()}
    assert counts["outer"] == (2, 0)
    assert counts["inner"] == (2, 0)


def test_rows_that_are_drawn_in_a_callback_and_read_later_have_an_entry(path):
    ledger = ps.Ledger.create(path)
    ledger.add("outer", **LIMIT)
    ledger.add("inner", **LIMIT, neighbours="replace")
    kept = []

    def blocks():
        projection = ps.Projection.draw(BOX, 2, epsilon=1.0, delta=1e-6)
        kept.append(projection.releases([RECORDS], ledger=(path, "inner")))
        yield RECORDS

    ps.sketch(blocks(), design(), ledger=(path, "outer"))
    next(kept[0])
    assert ledger.total("inner").epsilon == 1


def test_a_callback_without_a_ledger_is_not_charged_to_the_release_around_it(path):
    ledger = ps.Ledger.create(path)
    ledger.add("outer", **LIMIT)

    def blocks():
        ps.sketch(RECORDS, design())
        assert ledger.entries() == []
        yield np.full((5, 3), np.nan)

    with pytest.raises(ps.PrivsketchError, match="missing"):
        ps.sketch(blocks(), design(), ledger=(path, "outer"))
    assert ledger.entries() == []


def test_a_release_of_less_than_a_record_has_no_place(path):
    ps.Ledger.create(path).add("records", **LIMIT, neighbours="replace")
    for less in ({"protect": "element"}, {"bound": 0.1}):
        projection = ps.Projection.draw(BOX, 2, epsilon=1.0, delta=0.0, **less)
        with pytest.raises(BudgetError, match="whole records"):
            projection.releases([RECORDS], ledger=(path, "records"))
        assert not projection.was_used


def test_persons_and_records_do_not_add_up(path):
    ledger = ps.Ledger.create(path)
    ledger.add("visits", **LIMIT, person="patient")
    table = pd.DataFrame({"patient": np.arange(300) // 3, "age": np.arange(300) % 90})
    schema = ps.Schema([ps.Number("age", 0, 100)], person="patient")
    plan = {"n_components": 2, "budget": ps.Budget(1.0, 1e-6), "n_features": 20}
    ps.sketch(table, ps.Design.plan(domain=schema, **plan), ledger=(path, "visits"))
    alone = ps.Schema([ps.Number("age", 0, 100)])
    with pytest.raises(BudgetError, match="persons"):
        ps.sketch(table, ps.Design.plan(domain=alone, **plan), ledger=(path, "visits"))
    # All rows are noted, not those alone that were drawn by lot: the second time they are known.
    ledger.add("again", **LIMIT, person="patient")
    with pytest.warns(ps.PrivsketchWarning, match="records of data set 'visits'"):
        ps.sketch(table, ps.Design.plan(domain=schema, **plan), ledger=(path, "again"))


def test_rows_of_files_are_entered_with_where_they_went(path, tmp_path):
    ledger = ps.Ledger.create(path)
    ledger.add("records", **LIMIT, neighbours="replace")
    np.save(tmp_path / "x.npy", RECORDS)
    projection = ps.Projection.draw(BOX, 2, epsilon=1.0, delta=1e-6)
    files = RecordFiles.of(ps.Table([tmp_path / "x.npy"]), carry=None)
    output = tmp_path / "rows.parquet"
    with writing_to(str(output)):
        release_files(files, projection, output, ledger=(path, "records"))
    (entry,) = ledger.entries()
    assert (entry.state, entry.output) == ("committed", str(output))
    ledger.add("other", **LIMIT)
    with pytest.warns(ps.PrivsketchWarning, match="records of data set 'records'"):
        ps.sketch(RECORDS, design(), ledger=(path, "other"))


# Recognition.


def written(folder, frame, kind):
    if kind == "frame":
        return frame
    if kind == "arrow":
        return pa.Table.from_pandas(frame, preserve_index=False)
    path = folder / f"table.{kind}"
    if kind == "csv":
        frame.to_csv(path, index=False)
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path)
    else:
        np.save(path, frame.to_numpy())
    return path


@pytest.fixture
def known(path):
    """A ledger that has seen a table as a frame."""
    ledger = ps.Ledger.create(path)
    ledger.add("old", **LIMIT)
    ledger.add("new", **LIMIT)
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(rng.uniform(-1, 1, (20_000, 3)).round(6), columns=["a", "b", "c"])
    ps.sketch(frame, design(columns=("a", "b", "c")), ledger=(path, "old"))
    return frame, ledger


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame", "arrow", "npy"])
def test_the_same_table_is_recognised_however_it_is_written(known, path, tmp_path, kind):
    frame, _ = known
    shuffled = frame.sample(frac=1, random_state=3)
    data = written(tmp_path, shuffled, kind)
    with pytest.warns(ps.PrivsketchWarning, match="these are the records of data set 'old'"):
        ps.sketch(data, design(columns=("a", "b", "c")), ledger=(path, "new"))


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame"])
def test_a_tenth_changed_is_recognised_with_the_share(known, path, tmp_path, kind):
    frame, _ = known
    changed = frame.copy()
    changed.loc[changed.sample(frac=0.1, random_state=4).index, "a"] *= 0.5
    data = written(tmp_path, changed, kind)
    with pytest.warns(ps.PrivsketchWarning, match="already") as told:
        ps.sketch(data, design(columns=("a", "b", "c")), ledger=(path, "new"))
    (words,) = {str(one.message) for one in told if "already" in str(one.message)}
    share = int(words.split("about ")[1].split(" %")[0])
    # 255 marks: a standard error of 1.9 points, of which five leave 6e-7 in both tails.
    assert abs(share - 90) <= 10


def test_other_records_and_other_encodings_raise_no_alarm(known, path):
    frame, ledger = known
    ledger.add("third", **LIMIT)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ps.PrivsketchWarning)
        other = np.random.default_rng(5).uniform(-1, 1, (20_000, 3))
        ps.sketch(other, design(), ledger=(path, "third"))
        # A schema encodes otherwise: nothing can be said.
        schema = ps.Schema([ps.Number(name, -1, 1) for name in "abc"])
        plan = ps.Design.plan(
            n_components=2, domain=schema, budget=ps.Budget(1.0, 1e-6), n_features=30
        )
        ps.sketch(frame, plan, ledger=(path, "old"))
    with pytest.warns(ps.PrivsketchWarning, match="is it the right name"):
        ps.sketch(other, design(), ledger=(path, "old"))


def test_precision_and_kinds_of_numbers_do_not_matter(path):
    ledger = ps.Ledger.create(path)
    for name in ("old", "new", "whole"):
        ledger.add(name, **LIMIT)
    short = RECORDS.astype(np.float32)
    ps.sketch(short, design(), ledger=(path, "old"))
    text = [[float(str(cell)) for cell in row] for row in short]  # as a CSV has them
    with pytest.warns(ps.PrivsketchWarning, match="records of data set 'old'"):
        ps.sketch(text, design(), ledger=(path, "new"))
    numbers = np.random.default_rng(0).integers(-1, 2, (50, 3))
    zeros = numbers.astype(np.float64)
    zeros[zeros == 0] = -0.0
    ps.sketch(numbers, design(), ledger=(path, "whole"))
    ledger.add("again", **LIMIT)
    with pytest.warns(ps.PrivsketchWarning, match="records of data set 'whole'"):
        ps.sketch(zeros, design(), ledger=(path, "again"))


@pytest.mark.parametrize("engine", ["threads", "pool", "dask"])
def test_engines_note_the_same_marks(path, tmp_path, engine):
    require_the_same_marks(path, tmp_path, engine)


def test_spark_notes_the_same_marks(path, tmp_path, spark):
    require_the_same_marks(path, tmp_path, "spark")
    ps.Ledger(path).add("frame", **LIMIT)
    frame = spark.createDataFrame(RECORDS.tolist(), list("abc"))
    with pytest.warns(ps.PrivsketchWarning, match="these are the records of data set"):
        clustered(
            lloyd.cluster,
            frame,
            2,
            domain=ps.Box(-1, 1, dim=3),
            budget=ps.Budget(0.1, 1e-7),
            n_rounds=1,
            ledger=(path, "frame"),
        )


def require_the_same_marks(path, tmp_path, engine):
    ledger = ps.Ledger.create(path)
    for name in ("old", "new"):
        ledger.add(name, **LIMIT)
    frame = pd.DataFrame(RECORDS, columns=list("abc"))
    frame.to_parquet(tmp_path / "x.parquet", row_group_size=500)
    ps.sketch(RECORDS, design(), ledger=(path, "old"))
    with pytest.warns(ps.PrivsketchWarning, match="these are the records of data set 'old'"):
        ps.sketch(tmp_path / "x.parquet", design(), engine=engine, ledger=(path, "new"))


def test_marks_and_key_stay_in_the_ledger(known):
    _, ledger = known
    text = str(ledger.export())
    assert ledger.key.hex() not in text
    assert "mark" not in text


def test_a_warning_that_is_an_error_stops_before_anything_is_spent(known, path):
    frame, ledger = known
    before = ledger.total("new")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ps.PrivsketchWarning)
        with pytest.raises(ps.PrivsketchWarning):
            ps.sketch(frame, design(columns=("a", "b", "c")), ledger=(path, "new"))
    assert ledger.total("new") == before


@pytest.mark.slow
def test_a_killed_process_has_spent(path, tmp_path):
    ledger = ps.Ledger.create(path)
    ledger.add("records", **LIMIT)
    script = textwrap.dedent(
        """
        import os, signal, sys
        import numpy as np, privsketch as ps
        from privsketch.ledger.entry import watch_entries
        domain = ps.Box(-1, 1, dim=2)
        plan = ps.Design.plan(n_components=2, domain=domain, budget=ps.Budget(1.0, 1e-6))
        with watch_entries(lambda: os.kill(os.getpid(), signal.SIGKILL)):
            ps.sketch(np.zeros((10, 2)), plan, ledger=(sys.argv[1], "records"))
        """
    )
    done = subprocess.run([sys.executable, "-c", script, path], check=False, env=os.environ)
    assert done.returncode == -9
    (entry,) = ledger.entries()
    assert entry.state == "reserved"
    assert ledger.total("records").epsilon == Fraction(1)


def test_what_is_no_name_of_a_ledger_is_told(tmp_path):
    """An empty text is no file, and a ledger is named by its file, which clones and copies keep."""
    ledger = ps.Ledger.create(tmp_path / "l.ledger")
    for empty in ("", ("", "visits")):
        with pytest.raises(ParameterError, match="expected the file of a ledger; None is for none"):
            named_data_set(empty)
    for given in (ledger, (ledger, "visits")):
        with pytest.raises(ParameterError, match=r"give its file: \(ledger.path, 'name'\)"):
            named_data_set(given)
