"""The demo: five sites, a collector and an analyst, through the files they would use.

The records are synthetic and public, so the demo may do what nobody could do with
real ones: compare with k-means on all records together.
"""

from __future__ import annotations

import time
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt

import privsketch as ps
from privsketch.cli.progress import record_bar, spinner
from privsketch.errors import FileError
from privsketch.models.base import nearest
from privsketch.report.html import save_report

COLUMNS = ("age", "bmi", "systolic", "glucose", "cholesterol", "heart_rate")
# Public bounds of the story: wide, and named without a look at any record.
LOW = (0.0, 10.0, 70.0, 40.0, 80.0, 30.0)
HIGH = (110.0, 60.0, 220.0, 300.0, 360.0, 150.0)
N_SITES, N_CLUSTERS = 5, 6  # rows of _MIX, rows of _GROUPS
EPSILON, DELTA = 0.5, 1e-6  # delta: a tenth of one over the 100,000 records of all sites
# Typical values of six synthetic groups of patients, and the spread inside a group.
_GROUPS = np.array(
    [
        [28, 23, 116, 88, 170, 72],
        [46, 29, 138, 104, 228, 76],
        [63, 34, 152, 186, 204, 82],
        [71, 25, 168, 98, 240, 64],
        [82, 22, 128, 94, 176, 70],
        [38, 38, 128, 118, 196, 96],
    ],
    dtype=np.float64,
)
_SPREAD = np.array([6.0, 2.4, 8.0, 9.0, 16.0, 6.0])
# Not every site sees the same patients.
_MIX = np.array(
    [
        [5, 3, 1, 1, 1, 2],
        [1, 4, 3, 2, 1, 2],
        [2, 2, 2, 2, 2, 2],
        [1, 1, 2, 4, 5, 1],
        [3, 3, 2, 1, 1, 3],
    ],
    dtype=np.float64,
)


def standardise(table: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Columns in units of their public bounds, -1 to 1: k-means weighs columns by their size."""
    low, high = np.array(LOW), np.array(HIGH)
    return np.asarray((2 * table - low - high) / (high - low))


def site_records(site: int, n_records: int) -> npt.NDArray[np.float64]:
    """Synthetic records of one site; the same on every run."""
    rng = np.random.default_rng([2019, site])
    groups = rng.choice(len(_GROUPS), size=n_records, p=_MIX[site] / _MIX[site].sum())
    return standardise(_GROUPS[groups] + _SPREAD * rng.standard_normal((n_records, len(COLUMNS))))


def run_demo(folder: Path, n_records: int) -> None:
    """Run the whole story and leave its files in `folder`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder}: {error.strerror or 'cannot be made'}") from None
    started = time.perf_counter()
    _say("Five hospitals hold records that may not move. Their columns, age, bmi, blood")
    _say("pressure and so on, are scaled to [-1, 1] by public bounds.")
    tables = []
    for site in range(N_SITES):
        tables.append(site_records(site, n_records))
        arrow = pa.table(dict(zip(COLUMNS, tables[-1].T, strict=True)))
        pq.write_table(arrow, folder / f"site-{site + 1}.parquet")

    _step(
        "They agree on a public recipe",
        f"privsketch design -k {N_CLUSTERS} --box -1 1 --columns {','.join(COLUMNS)} "
        f"--epsilon {EPSILON} --delta {DELTA} --records {n_records} --seed 7 "
        "-o study.json",
    )
    design = ps.Design.plan(
        n_components=N_CLUSTERS,
        domain=ps.Box(-1, 1, dim=len(COLUMNS)),
        budget=ps.Budget(EPSILON, DELTA),
        n_records=n_records,
        columns=COLUMNS,
        random_state=7,
    )
    design.save(folder / "study.json")
    click.echo(_indent(design.describe()))

    _step(
        "Every site reads its records once and publishes a sketch",
        "privsketch sketch study.json site-1.parquet -o site-1.sketch",
    )
    study = ps.Design.load(folder / "study.json")
    for site in range(1, N_SITES + 1):
        path = folder / f"site-{site}.parquet"
        with record_bar([path]) as advance:
            released = ps.sketch(path, study, source=f"site-{site}", progress=advance)
        released.save(folder / f"site-{site}.sketch")
        size = (folder / f"site-{site}.sketch").stat().st_size
        click.echo(
            f"    site-{site}.sketch  {size:,} bytes for {path.stat().st_size:,} bytes of "
            f"records, epsilon = {released.receipt.epsilon:g}"
        )

    _step("The collector adds them up", "privsketch merge site-*.sketch -o all.sketch")
    total = ps.merge(ps.Sketch.load(folder / f"site-{i + 1}.sketch") for i in range(N_SITES))
    total.save(folder / "all.sketch")
    click.echo(_indent(total.receipt.describe()))

    _step(
        "The analyst learns clusters from the sum alone",
        f"privsketch learn all.sketch -k {N_CLUSTERS} -o model.json --report report.html",
    )
    with spinner("learning"):
        model = ps.learn_kmeans(total, N_CLUSTERS)
    model.save(folder / "model.json")
    save_report(model, total, folder / "report.html", title="Five hospitals, six groups")
    click.echo(_indent(model.describe()))

    _step(
        "The sketch is paid for: further questions cost nothing. How many groups are there?",
        "privsketch learn all.sketch -k auto",
    )
    with spinner("learning"):
        number = ps.learn_kmeans(total, "auto").n_clusters
    click.echo(f"    {number} clusters explain the sketch")

    _step(
        "And what would such records look like? A Gaussian mixture makes synthetic ones",
        "privsketch learn all.sketch --task gaussian-mixture --covariance-type diag "
        "-o mixture.json",
    )
    with spinner("learning"):
        mixture = ps.learn_gaussian_mixture(total, N_CLUSTERS, covariance_type="diag")
    mixture.save(folder / "mixture.json")
    synthetic, _ = mixture.sample(1000, random_state=7)
    invented = pa.table(dict(zip(COLUMNS, synthetic.T, strict=True)))
    pq.write_table(invented, folder / "synthetic.parquet")
    click.echo("    1,000 synthetic records, free to publish, are in synthetic.parquet")

    _step("How good is it? Only a demo can tell, because its records are public", None)
    with spinner("k-means on all records"):
        ratio = _compare(np.concatenate(tables), model)
    click.echo(f"    squared error {ratio:.3f} times that of k-means on all records together")
    real = np.sqrt(np.concatenate(tables).var(axis=0))
    made_up = np.sqrt(synthetic.var(axis=0))
    worst = float(np.abs(made_up / real - 1).max())
    click.echo(f"    spread of synthetic columns within {worst:.0%} of the real ones")
    click.echo(f"\nDone in {time.perf_counter() - started:.0f} s. Open {folder / 'report.html'}")


def _compare(records: npt.NDArray[np.float64], model: ps.ClusterModel) -> float:
    from sklearn.cluster import KMeans

    plain = KMeans(model.n_clusters, n_init=3, random_state=0).fit(records)
    ours = model.centers[nearest(records, model.centers)]
    return float(np.square(records - ours).sum() / plain.inertia_)


def _say(text: str) -> None:
    click.echo(text)


def _step(title: str, command: str | None) -> None:
    click.secho(f"\n{title}", bold=True)
    if command is not None:
        click.secho(f"  $ {command}", fg="cyan")


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
