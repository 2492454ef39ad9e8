"""Steps of the demo: five hospitals, a collector and an analyst, with the files they would use.

Tables are as in practice: units, a category, a flag, dates, missing values, several visits of a
patient. The records are synthetic and public, so the demo can do what nobody could do with real
records: compare with k-means on all of them together.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import privsketch as ps
from privsketch._base.errors import AccessError
from privsketch.cli.shell.answer import answer, say, wants_json
from privsketch.cli.shell.facts import model_facts
from privsketch.cli.shell.output import require_empty
from privsketch.cli.shell.progress import record_bar, spinner
from privsketch.cli.shell.spending import Spending
from privsketch.models.base import nearest
from privsketch.pages.report.html import save_report
from privsketch.tables.reading import read_blocks
from privsketch.tables.table import Table

N_SITES, N_CLUSTERS = 5, 6  # rows of _GROUP_SIZES, rows of _GROUP_TRAITS
EPSILON, DELTA = 0.5, 1e-6  # delta: 0.1 / n for n = 100,000 patients at all sites
LIMIT, LIMIT_DELTA = 1.5, 3e-6  # of each hospital, for all releases about its visits
FIRST_DAY, LAST_DAY = "2020-01-01", "2024-12-31"
WARDS = ("surgery", "cardiology", "oncology", "geriatrics")
TARGET, ON = "systolic", ("age", "bmi", "smoker")  # what the last question is about
_TITLE = "Five hospitals, six groups"
_FILES = (
    *("schema.json", "study.json", "all.sketch", "model.json", "report.html"),
    *("mixture.json", "mixture.html", "synthetic.csv"),
    *(
        "pressure-schema.json",
        "pressure.json",
        "pressure.sketch",
        "regression.json",
        "regression.html",
    ),
)
_LOW_WEIGHT = 0.3  # of columns that describe the groups rather than define them
# Public bounds of the demo: wide, and chosen without a look at any record.
SCHEMA = ps.Schema(
    (
        ps.Number("age", 18, 100, unit="years"),
        ps.Number("bmi", 12, 55, unit="kg/m2"),
        ps.Number("systolic", 80, 210, unit="mmHg"),
        ps.Number("glucose", 3, 15, unit="mmol/l"),
        ps.Number("cholesterol", 2, 9, unit="mmol/l"),
        ps.Number("heart_rate", 40, 140, unit="/min"),
        ps.Category("ward", WARDS, weight=_LOW_WEIGHT),
        ps.Flag("smoker", weight=_LOW_WEIGHT),
        ps.Date("admitted", FIRST_DAY, LAST_DAY, weight=_LOW_WEIGHT),
    ),
    missing="drop",
    person="patient_id",
)
# Six synthetic groups of patients, a row each: typical values of the six columns of numbers, shares
# of the wards, share of smokers, and time of admission from the first day (0) to the last (1).
_GROUP_TRAITS = np.array(
    [
        [28, 23, 116, 4.9, 4.4, 72, 0.80, 0.10, 0.05, 0.05, 0.45, 0.50],
        [46, 29, 138, 5.8, 5.9, 76, 0.30, 0.20, 0.45, 0.05, 0.30, 0.50],
        [63, 34, 152, 10.3, 5.3, 82, 0.25, 0.55, 0.10, 0.10, 0.25, 0.50],
        [71, 25, 168, 5.4, 6.2, 64, 0.10, 0.75, 0.10, 0.05, 0.10, 0.30],
        [82, 22, 128, 5.2, 4.6, 70, 0.05, 0.10, 0.10, 0.75, 0.05, 0.50],
        [38, 38, 128, 6.5, 5.1, 96, 0.75, 0.15, 0.05, 0.05, 0.50, 0.75],
    ]
)
_GROUPS, _WARD_SHARES = _GROUP_TRAITS[:, :6], _GROUP_TRAITS[:, 6:10]
_SMOKER_SHARES, _ADMISSIONS = _GROUP_TRAITS[:, 10], _GROUP_TRAITS[:, 11]
_SPREAD = np.array([6.0, 2.4, 8.0, 0.6, 0.45, 6.0])  # of the numbers inside a group
_PATIENT_SHARE, _VISIT_SHARE = 0.8, 0.6  # shares of the spread; their squares add up to 1
_MISSING_SHARE = 0.02  # of the values in six columns: one row in nine lacks a value
# Sizes of the groups at each site: sites see different patients.
_GROUP_SIZES = np.array(
    [
        [5, 3, 1, 1, 1, 2],
        [1, 4, 3, 2, 1, 2],
        [2, 2, 2, 2, 2, 2],
        [1, 1, 2, 4, 5, 1],
        [3, 3, 2, 1, 1, 3],
    ],
    dtype=np.float64,
)


def site_table(site: int, n_patients: int) -> Any:
    """Return synthetic visits at one site as an Arrow table, the same on every run."""
    import pyarrow as pa

    rng = np.random.default_rng([2019, site])
    groups = rng.choice(
        len(_GROUPS), size=n_patients, p=_GROUP_SIZES[site] / _GROUP_SIZES[site].sum()
    )
    patient = np.repeat(np.arange(n_patients), rng.geometric(0.4, n_patients))
    group, size = groups[patient], len(patient)
    patient_deviations = _PATIENT_SHARE * rng.standard_normal((n_patients, len(_SPREAD)))
    visit_deviations = _VISIT_SHARE * rng.standard_normal((size, len(_SPREAD)))
    numbers = (_GROUPS[group] + _SPREAD * (patient_deviations[patient] + visit_deviations)).round(1)
    ward = (rng.random(size)[:, np.newaxis] > _WARD_SHARES[group].cumsum(axis=1)).sum(axis=1)
    smoker = (rng.random(n_patients) < _SMOKER_SHARES[groups])[patient]
    admission = np.clip(_ADMISSIONS[group] + 0.18 * rng.standard_normal(size), 0.0, 1.0)
    days = (np.datetime64(LAST_DAY) - np.datetime64(FIRST_DAY)).astype(int)
    columns = {"patient_id": pa.array([f"S{site + 1}-{number:06}" for number in patient])}
    for name, values in zip(SCHEMA.names, numbers.T, strict=False):
        columns[name] = pa.array(values, mask=rng.random(size) < _MISSING_SHARE)
    columns["ward"] = pa.array(np.array(WARDS)[np.minimum(ward, len(WARDS) - 1)])
    columns["smoker"] = pa.array(smoker)
    columns["admitted"] = pa.array(np.datetime64(FIRST_DAY) + (admission * days).astype(int))
    return pa.table(columns).take(pa.array(rng.permutation(size)))


def run_demo(folder: Path, n_records: int, spending: Spending | None = None) -> None:
    """Run the demo with `n_records` patients a site, and leave its files in `folder`."""
    require_empty(folder, "a demo replaces no file")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AccessError(f"{folder}: {error.strerror or 'cannot be made'}") from None
    start_time = time.perf_counter()
    say("Five hospitals have tables of visits that must not leave them: several visits a patient,")
    say("numbers in their units, a ward, a yes/no column, dates, and missing values.")
    paths = write_tables(folder, n_records)
    design = _make_design(folder, n_records)
    _make_sketches(design, paths, spending)

    step("The collector adds them up", "privsketch merge site-*.sketch -o all.sketch")
    total = ps.merge(ps.Sketch.load(path.with_suffix(".sketch")) for path in paths)
    total.save(folder / "all.sketch")
    say(indent(total.receipt.describe()))
    model, n_clusters = _learn_clusters(folder, total)
    _learn_mixture(folder, total)

    step("How good is it? Only a demo can tell, because its records are public", None)
    with spinner("k-means on all records"):
        records = np.concatenate([kept_records(path) for path in paths])
        ratio = error_ratio(records, model)
    say(
        f"    squared error {ratio:.3f} times that of k-means on the {len(records):,} records that "
        "counted"
    )
    _learn_regression(folder, paths, n_records)
    say(
        f"\nDone in {time.perf_counter() - start_time:.0f} s. Open {folder / 'report.html'}, "
        f"{folder / 'mixture.html'} and {folder / 'regression.html'}"
    )
    files = [*paths, *(path.with_suffix(end) for end in (".sketch", ".ledger") for path in paths)]
    files += [folder / name for name in _FILES]
    answer_demo(files, design, model, ratio, start_time, n_clusters_found=n_clusters)


def _make_design(folder: Path, n_records: int) -> ps.Design:
    """Write the schema and the design; return the design as sites read it."""
    say("\nThey write down what is public about such a table: schema.json", bold=True)
    SCHEMA.save(folder / "schema.json")
    columns = [json.dumps(column.to_json()) for column in SCHEMA.columns]
    say(indent("\n".join([*columns[:2], "...", *columns[-3:]])))
    step(
        "They agree on a public recipe",
        f"privsketch design -k {N_CLUSTERS} --schema schema.json --epsilon {EPSILON} "
        f"--delta {DELTA} --records {n_records} --seed 7 -o study.json",
    )
    design = plan_design(EPSILON, n_records)
    design.save(folder / "study.json")
    say(indent(design.describe()))
    return ps.Design.load(folder / "study.json")


def plan_design(epsilon: float, n_records: int) -> ps.Design:
    """Return the design of the demo."""
    return ps.Design.plan(
        n_components=N_CLUSTERS,
        domain=SCHEMA,
        budget=ps.Budget(epsilon, DELTA),
        n_records=n_records,
        random_state=7,
    )


def _make_sketches(design: ps.Design, paths: list[Path], spending: Spending | None) -> None:
    """Make a ledger and a sketch at every site."""
    step(
        "Every site has a ledger, and states the most that may ever be spent on its visits",
        f"privsketch ledger create site-1.ledger; privsketch ledger add site-1.ledger visits "
        f"--epsilon {LIMIT} --delta {LIMIT_DELTA} --person {SCHEMA.person}",
    )
    ledgers = [_new_ledger(path.with_suffix(".ledger")) for path in paths]
    step(
        "Every site reads its table once and publishes a sketch: one visit of each patient counts",
        "privsketch sketch study.json site-1.csv -o site-1.sketch --ledger site-1.ledger",
    )
    for path, ledger in zip(paths, ledgers, strict=True):
        with record_bar(Table(path)) as advance:
            sketch = ps.sketch(
                path, design, source=path.stem, progress=advance, ledger=(ledger.path, "visits")
            )
        file = path.with_suffix(".sketch")
        sketch.save(file)
        if spending is not None:
            spending.mark_written(file)
        say(
            f"    {file.name}  {file.stat().st_size:,} bytes for {path.stat().st_size:,} bytes of "
            f"visits, epsilon = {sketch.receipt.epsilon:g} for {sketch.receipt.unit}"
        )
    (data_set,) = ledgers[0].datasets()
    say(f"    the ledger of site-1 has {data_set.limit.left_text(data_set.spent)} left")


def _learn_clusters(folder: Path, total: ps.Sketch) -> tuple[ps.ClusterModel, int]:
    """Learn clusters from the sum; return the model, and the number that the sum suggests."""
    step(
        "The analyst learns clusters from the sum alone",
        f"privsketch learn all.sketch -k {N_CLUSTERS} -o model.json --report report.html",
    )
    with spinner("learning"):
        model = ps.learn_kmeans(total, N_CLUSTERS)
    model.save(folder / "model.json")
    save_report(model, total, folder / "report.html", title=_TITLE)
    say(indent(model.describe()))
    step(
        "The sketch is paid for: further questions cost nothing. How many groups are there?",
        "privsketch learn all.sketch -k auto",
    )
    with spinner("learning"):
        number = ps.learn_kmeans(total, "auto").n_clusters
    say(f"    {number} clusters are told apart")
    return model, number


def _learn_mixture(folder: Path, total: ps.Sketch) -> None:
    """Learn a mixture from the sum, and draw synthetic records from it."""
    step(
        "And what would such records look like? A Gaussian mixture makes synthetic ones",
        "privsketch learn all.sketch --task gaussian-mixture --covariance-type diag --n-init 1 "
        "-o mixture.json --report mixture.html",
    )
    with spinner("learning"):
        mixture = ps.learn_gaussian_mixture(total, N_CLUSTERS, covariance_type="diag", n_init=1)
    mixture.save(folder / "mixture.json")
    save_report(mixture, total, folder / "mixture.html", title=f"{_TITLE}, as a mixture")
    say(indent(_write_synthetic(mixture, folder / "synthetic.csv")))
    say("    1,000 of them, free to publish, are in synthetic.csv")


def _learn_regression(folder: Path, paths: list[Path], n_records: int) -> None:
    """Ask what goes with a column, which needs another sketch, and hence budget of its own."""
    step(
        "What goes with blood pressure? That needs products of columns: a design for fewer of them",
        f"privsketch design --task regression --target {TARGET} --schema pressure-schema.json "
        f"--epsilon {EPSILON} --delta {DELTA} --records {n_records} -o pressure.json",
    )
    columns = [replace(c, weight=1.0) for c in SCHEMA.columns if c.name in (*ON, TARGET)]  # type: ignore[type-var]
    schema = replace(SCHEMA, columns=columns)
    schema.save(folder / "pressure-schema.json")
    design = ps.Design.plan(
        task="regression",
        target=TARGET,
        domain=schema,
        budget=ps.Budget(EPSILON, DELTA),
        n_records=n_records,
    )
    design.save(folder / "pressure.json")
    say(f"    {design.forecast(n_holders=N_SITES).describe()}")
    step(
        "Every site makes a sketch of it, and the collector adds them up as before",
        "privsketch sketch pressure.json site-1.csv -o site-1-pressure.sketch --ledger "
        "site-1.ledger",
    )
    sketches = []
    for path in paths:
        source, ledger = f"{path.stem}-pressure", (path.with_suffix(".ledger"), "visits")
        sketches.append(ps.sketch(path, design, source=source, ledger=ledger))
    total = ps.merge(sketches)
    total.save(folder / "pressure.sketch")
    (data_set,) = ps.Ledger(paths[0].with_suffix(".ledger")).datasets()
    say(f"    the ledger of site-1 has {data_set.limit.left_text(data_set.spent)} left")
    step(
        "The analyst learns coefficients with intervals, in units of the table",
        "privsketch learn pressure.sketch -o regression.json --report regression.html",
    )
    model = ps.learn_regression(total)
    model.save(folder / "regression.json")
    save_report(model, total, folder / "regression.html")
    say(indent(model.describe()))


def answer_demo(
    files: Iterable[Path],
    design: ps.Design,
    model: ps.ClusterModel,
    ratio: float,
    start_time: float,
    *,
    n_clusters_found: int | None = None,
    ratio_apart: float | None = None,
) -> None:
    """Print the JSON answer of a demo: its files, and its model with the error ratio."""
    if wants_json():
        answer(
            written=list(files),
            fingerprint=design.fingerprint,
            n_clusters_found=n_clusters_found,
            error_ratio=ratio,
            error_ratio_apart=ratio_apart,
            seconds=time.perf_counter() - start_time,
            **model_facts(model),
        )


def _new_ledger(path: Path) -> ps.Ledger:
    """Create a ledger for the visits of one site."""
    ledger = ps.Ledger.create(path)
    ledger.add("visits", epsilon=LIMIT, delta=LIMIT_DELTA, person=SCHEMA.person)
    return ledger


def write_tables(folder: Path, n_patients: int) -> list[Path]:
    """Write a CSV file for the first site and Parquet files for all other sites."""
    import pyarrow.csv
    import pyarrow.parquet

    paths = []
    for site in range(N_SITES):
        table = site_table(site, n_patients)
        path = folder / f"site-{site + 1}.{'parquet' if site else 'csv'}"
        if site:
            pyarrow.parquet.write_table(table, path)
        else:
            pyarrow.csv.write_csv(table, path)
        paths.append(path)
    return paths


def _write_synthetic(mixture: ps.GaussianMixtureModel, path: Path) -> str:
    """Write the rows of `mixture.sample_table(1000)` without pandas, and return a few as text."""
    import pyarrow as pa
    import pyarrow.csv

    synthetic = mixture.sample_columns(1000, random_state=7)
    columns = {
        name: values.round(1) if values.dtype == np.float64 else values
        for name, values in synthetic.items()
    }
    pyarrow.csv.write_csv(pa.table(columns), path)
    rows = [[*columns], *zip(*(values[::290] for values in columns.values()), strict=True)]
    texts = [[str(value) for value in row] for row in rows]
    widths = [max(len(row[j]) for row in texts) for j in range(len(columns))]
    lines = [
        "  ".join(f"{text:>{width}}" for text, width in zip(row, widths, strict=True))
        for row in texts
    ]
    return "\n".join(lines)


def kept_records(path: Path) -> npt.NDArray[np.float64]:
    """Return the encoded records of a table, one of each patient."""
    table = Table(path)
    blocks = read_blocks(table, table.selection(SCHEMA.dim, schema=SCHEMA))
    return np.concatenate([np.asarray(block, dtype=np.float64) for block in blocks])


def error_ratio(records: npt.NDArray[np.float64], model: ps.ClusterModel) -> float:
    """Return the squared error of the centers divided by that of k-means on the records."""
    from sklearn.cluster import KMeans

    reference = KMeans(model.n_clusters, n_init=3, random_state=0).fit(records)
    centers = model.centers[nearest(records, model.centers)]
    return float(np.square(records - centers).sum() / reference.inertia_)


def step(title: str, command: str | None) -> None:
    """Print the title of the next step, and its command."""
    say(f"\n{title}", bold=True)
    if command is not None:
        say(f"  $ {command}", fg="cyan")


def indent(text: str) -> str:
    """Indent the output of a command."""
    return "\n".join(f"    {line}" for line in text.splitlines())
