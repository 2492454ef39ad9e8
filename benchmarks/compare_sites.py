"""Do comparisons of sources cry wolf? Alarms in honest studies, and with pounds and inches.

`python -m benchmarks compare_sites --studies 1000` draws honest studies: clusters of random number,
place and shape, sources with shares of their own, clusters that some lack, centers that lie a
little elsewhere, tables with and without labels, pure and approximate budgets. An alarm in one of
them is false. `--power` puts one source of five into pounds and inches.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

import privsketch as ps


def honest_study(seed: int) -> list[ps.Sketch]:
    """Sketches of three to seven honest sources of a random study."""
    rng = np.random.default_rng([seed, 19])
    dim, k = int(rng.integers(2, 9)), int(rng.integers(1, 7))
    n_sources = int(rng.integers(3, 8))
    delta = float(rng.choice([0.0, 1e-6]))
    budget = ps.Budget(epsilon=float(np.exp(rng.uniform(np.log(0.3), np.log(3)))), delta=delta)
    with_labels, with_schema = rng.random() < 0.3, rng.random() < 0.6
    lows = rng.choice([0.0, 0.0, 10.0, -50.0], size=dim)
    highs = lows + rng.choice([1.0, 50.0, 200.0, 1000.0], size=dim)
    scales = ["log" if low >= 0 and rng.random() < 0.15 else "linear" for low in lows]
    names = [f"c{j}" for j in range(dim)]
    numbers = [
        ps.Number(name, low, high, scale=scale)
        for name, low, high, scale in zip(names, lows, highs, scales, strict=True)
    ]
    labels: list[Any] = []
    if with_labels and with_schema:
        labels = [ps.Category("region", ["a", "b"]), ps.Flag("smoker")]
    if with_schema:
        domain: Any = ps.Schema([*numbers, *labels])
    else:
        domain = ps.Box(0 * lows - 1, 0 * highs + 1)
    design = ps.Design.plan(
        n_components=max(k, 1),
        domain=domain,
        budget=budget,
        n_records=5000,
        random_state=int(rng.integers(2**31)),
        feature_map="one-bit" if rng.random() < 0.1 else None,
    )
    centers = rng.uniform(0.15, 0.85, size=(k, dim))
    widths = rng.uniform(0.02, 0.1, size=(k, dim))
    turns = np.array([_correlation(rng, dim) for _ in range(k)])
    shares = rng.dirichlet(np.full(k, rng.uniform(0.5, 5)), size=n_sources)
    label_shares = rng.dirichlet(np.ones(3), size=k), rng.random(k)
    moves = rng.uniform(0, 0.5)  # of centers from source to source, in widths
    missing = rng.random((n_sources, k)) < 0.2
    shares = np.where(missing & (shares < shares.max(axis=1, keepdims=True)), 0.0, shares)
    found = []
    for s in range(n_sources):
        n = int(np.exp(rng.uniform(np.log(500), np.log(20_000))))
        z = rng.choice(k, size=n, p=shares[s] / shares[s].sum())
        own = centers + moves * widths * rng.normal(size=(k, dim))
        normal = np.einsum("nij,nj->ni", turns[z], rng.normal(size=(n, dim)))
        places = own[z] + widths[z] * normal
        records: Any = 2 * places - 1
        if with_schema:
            values = lows + places * (highs - lows)
            records = {name: values[:, j] for j, name in enumerate(names)}
            if labels:
                up_to = np.cumsum(label_shares[0], axis=1)[z]
                pick = (rng.random((n, 1)) > up_to).sum(axis=1)
                records["region"] = np.array(["a", "b", "c"], dtype=object)[np.minimum(pick, 2)]
                records["smoker"] = rng.random(n) < label_shares[1][z]
            import pandas as pd  # type: ignore[import-untyped]

            records = pd.DataFrame(records)
        found.append(ps.sketch(records, design, source=f"site-{s}"))
    return found


def _correlation(rng: np.random.Generator, dim: int) -> Any:
    """Return a factor of a correlation matrix, often of the identity."""
    if rng.random() < 0.5:
        return np.eye(dim)
    mixed = np.eye(dim) + 0.5 * rng.normal(size=(dim, dim)) / np.sqrt(dim)
    return mixed / np.linalg.norm(mixed, axis=1, keepdims=True)


def unit_study(
    seed: int, epsilon: float, delta: float, n: int, dim: int, k: int
) -> list[ps.Sketch]:
    """Five sources of patients, the fourth of which weighs in pounds and measures in inches."""
    import pandas as pd

    rng = np.random.default_rng([seed, 7])
    numbers = [ps.Number(f"c{j}", 0, 100) for j in range(dim - 2)]
    numbers += [ps.Number("weight", 20, 250, unit="kg"), ps.Number("height", 40, 220, unit="cm")]
    design = ps.Design.plan(
        n_components=k,
        domain=ps.Schema(numbers),
        budget=ps.Budget(epsilon=epsilon, delta=delta),
        n_records=n,
        random_state=seed,
    )
    centers = rng.uniform(20, 80, (k, dim))
    centers[:, -2:] = rng.uniform([55, 155], [100, 185], (k, 2))
    widths = np.r_[np.full(dim - 2, 6.0), 9.0, 7.0]
    found = []
    for s in range(5):
        z = rng.choice(k, n, p=rng.dirichlet(np.full(k, 2.0)))
        own = centers + rng.uniform(0, 0.3) * widths * rng.normal(size=centers.shape)
        values = own[z] + rng.normal(size=(n, dim)) * widths
        if s == 3:
            values[:, -2:] *= [2.2046226, 1 / 2.54]
        table = pd.DataFrame(values, columns=[number.name for number in numbers])
        found.append(ps.sketch(table, design, source=f"site-{s}"))
    return found


# What can go wrong at a site: values (n, 4) of glucose, cholesterol, age and weight become others.
PLANTED: dict[str, Callable[[Any], Any]] = {
    "glucose-x18": lambda values: values * [18.0, 1, 1, 1],
    "cholesterol-x38.67": lambda values: values * [1, 38.67, 1, 1],
    "both-units": lambda values: values * [18.0, 38.67, 1, 1],
    "shift": lambda values: np.add(values, [0, 0, 0, 120]),
    "cut": lambda values: np.minimum(values, [6.0, 99, 99, 999]),
    "swapped": lambda values: values[:, [0, 1, 3, 2]],
    "constant": lambda values: np.tile(values.mean(axis=0), (len(values), 1)),
}


def clinic_study(
    seed: int,
    mistake: str = "",
    *,
    n_sites: int = 5,
    n: int = 4000,
    odd_n: int | None = None,
    epsilon: float = 1.0,
) -> list[ps.Sketch]:
    """Return sketches of clinics with shares of their own; the second one makes the mistake."""
    import pandas as pd

    rng = np.random.default_rng([seed, 29])
    numbers = [
        ps.Number("glucose", 2, 30, unit="mmol/l"),
        ps.Number("cholesterol", 1, 12, unit="mmol/l"),
        ps.Number("age", 0, 110),
        ps.Number("weight", 20, 250, unit="kg"),
    ]
    design = ps.Design.plan(
        n_components=4,
        domain=ps.Schema(numbers),
        budget=ps.Budget(epsilon=epsilon, delta=1e-6),
        n_records=n,
        random_state=seed,
    )
    centers = rng.uniform([4, 3, 25, 50], [13, 8, 80, 110], (4, 4))
    widths = np.array([0.6, 0.5, 6.0, 8.0])
    names = [number.name for number in numbers]
    sketches = []
    for s in range(n_sites):
        size = odd_n if s == 1 and odd_n is not None else n
        z = rng.choice(4, size, p=rng.dirichlet(np.full(4, 2.0)))
        values = centers[z] + rng.normal(size=(size, 4)) * widths
        if s == 1 and mistake:
            values = PLANTED[mistake](values)
        table = pd.DataFrame(values, columns=names)
        sketches.append(ps.sketch(table, design, source=f"site-{s}"))
    return sketches


def shared_study(seed: int, share: float, *, n: int, epsilon: float) -> list[ps.Sketch]:
    """Return sketches of four sources; the second one has a share of the first one's records."""
    import pandas as pd

    rng = np.random.default_rng([seed, 31])
    design = clinic_study(seed, n_sites=1, n=n, epsilon=epsilon)[0].design
    centers = rng.uniform([4, 3, 25, 50], [13, 8, 80, 110], (4, 4))

    def records(size: int) -> Any:
        return centers[rng.integers(4, size=size)] + rng.normal(size=(size, 4)) * [0.6, 0.5, 6, 8]

    first = records(n)
    n_shared = round(share * n)
    tables = [first, np.vstack([first[:n_shared], records(n - n_shared)]), records(n), records(n)]
    return [
        ps.sketch(pd.DataFrame(table, columns=design.columns), design, source=name)
        for table, name in zip(tables, "abcd", strict=True)
    ]


def _honest(cell: tuple[str, int]) -> dict[str, Any]:
    kind, seed = cell
    sketches = honest_study(seed) if kind == "random" else clinic_study(seed)
    began = time.process_time()
    found = ps.compare(sketches)
    return {
        "seed": seed,
        "seconds": round(time.process_time() - began, 2),
        "alarms": found.alarm_lines(),
    }


def _planted(cell: tuple[int, str, int | None]) -> bool:
    """Return whether the second site alone alarms."""
    seed, mistake, odd_n = cell
    found = ps.compare(clinic_study(seed, mistake, odd_n=odd_n))
    return [alarm.source for alarm in found.alarms] == ["site-1"]


def is_named(found: ps.Comparison) -> bool:
    """Whether the fourth source alone alarms, for both columns and both factors."""
    if [one.source for one in found.alarms] != ["site-3"]:
        return False
    factors = {change.column: change.factor for change in found.alarms[0].changes}
    right = {"weight": 2.2046226, "height": 1 / 2.54}
    return set(factors) == set(right) and all(
        abs(factors[name] / right[name] - 1) < 0.02 for name in right
    )


def _power(cell: tuple[int, float, float, int, int, int]) -> bool:
    return is_named(ps.compare(unit_study(*cell)))


def _cells() -> Iterator[tuple[float, float, int, int, int]]:
    for dim, k in ((2, 2), (4, 3), (10, 5)):
        for epsilon, delta in ((0.3, 1e-6), (1.0, 1e-6), (1.0, 0.0)):
            for n in (500, 4000, 20_000):
                yield epsilon, delta, n, dim, k


def main() -> int:
    """Print a line of JSON for each study, or for each cell of the table of power."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="Seed of the first study.")
    parser.add_argument("--power", type=int, metavar="N", help="Studies of each cell instead.")
    parser.add_argument("--clinics", action="store_true", help="Sites that differ in shares only.")
    parser.add_argument("--planted", type=int, metavar="N", help="Studies of each mistake instead.")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    with ProcessPoolExecutor(given.workers) as pool:
        if given.power:
            for cell in _cells():
                right = list(pool.map(_power, [(seed, *cell) for seed in range(given.power)]))
                names = ("epsilon", "delta", "n_records", "dim", "k")
                told = dict(zip(names, cell, strict=True), named=sum(right), of=len(right))
                print(json.dumps(told), flush=True)
            return 0
        if given.planted:
            for mistake in PLANTED:
                for odd_n in (None, 200):
                    cells = [(seed, mistake, odd_n) for seed in range(given.planted)]
                    n_found = sum(pool.map(_planted, cells))
                    facts = {"mistake": mistake, "records": odd_n or 4000, "found": n_found}
                    print(json.dumps({**facts, "of": given.planted}), flush=True)
            return 0
        n_alarms = 0
        kind = "clinics" if given.clinics else "random"
        seeds = range(given.first, given.first + given.studies)
        for row in pool.map(_honest, [(kind, seed) for seed in seeds]):
            n_alarms += bool(row["alarms"])
            print(json.dumps(row), flush=True)
        facts = {"kind": kind, "studies": given.studies, "with_alarms": n_alarms}
        print(json.dumps(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
