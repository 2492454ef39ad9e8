"""What `ps.estimate_cost` says beforehand, against the time that sketching then takes.

Records are in memory, predictions and measurements alternate, and the shortest of several counts
for the latter; the grid has all feature maps, dense and structured frequencies, all kinds of masks,
2 to 1024 columns, one thread and two. Needs an idle machine. With `--shared`, on one that is not,
predictions are compared with processor time divided by the number of threads.

    python -m benchmarks cost
    python -m benchmarks cost --quick --shared
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import privsketch as ps
from benchmarks.common import parser_of
from privsketch.features.masks import Masks
from privsketch.sketching.estimate import public_records
from privsketch.sketching.sums import exact_sums

SECONDS = 0.3  # of a measurement, about
MAX_VALUES = 2**25  # 256 MB of records


def cases(quick: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and settings of designs."""
    for dim in (2, 10, 64, 1024):
        m = {2: 200, 10: 1000, 64: 4096, 1024: 8192}[dim]
        for feature_map in ("fourier", "one-bit"):
            for law in ("multi-scale", "structured"):
                block = max(64, dim) if law == "structured" else dim
                size = max(1, round(m / block)) * block
                masks = ["none"]
                if feature_map == "fourier":
                    kept = max(1, size // block // 8) * block
                    masks += [f"uniform:{m // 10}", "poisson:0.1", f"block:{kept}", "records:0.1"]
                for mask in masks[:: 2 if quick else 1]:
                    yield (
                        f"{feature_map}, {law}, {mask}",
                        {
                            "domain": ps.Box(-1, 1, dim=dim),
                            "n_features": size,
                            "feature_map": feature_map,
                            "frequencies": law,
                            "masks": Masks.parse(mask),
                            "n_components": 1 if dim == 2 else 2,
                        },
                    )
        for feature_map in ("quadratic", "second-moments"):
            settings = {
                "task": "pca",
                "domain": ps.Ball(dim, 1.0),
                "feature_map": feature_map,
                "n_components": 1,
            }
            if feature_map == "quadratic":
                settings["n_features"] = 4 * dim
            yield feature_map, settings


def measured(design: ps.Design, n_threads: int, expected: float, shared: bool) -> float:
    """Seconds per million records: the least of several turns of about as long as is expected."""
    clock = time.process_time if shared else time.perf_counter
    n = max(256, min(int(SECONDS / expected * 1e6), MAX_VALUES // design.dim))
    records = public_records(design.domain, n)
    least = float("inf")
    for _ in range(2):
        start = clock()
        exact_sums([records], design, n_threads=n_threads)
        least = min(least, clock() - start)
    return least / n * 1e6 / (n_threads if shared else 1)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="every other kind of masks")
    parser.add_argument("--shared", action="store_true", help="others use the machine too")
    arguments = parser.parse_args()
    print(f"{'columns':>7} {'features':>8} threads {'predicted':>9} {'measured':>9}  ratio  design")
    worst = 1.0
    for name, settings in cases(arguments.quick):
        design = ps.Design.plan(budget=ps.Budget(1.0, 1e-6), random_state=0, **settings)
        for n_threads in (1, 2):
            told = ps.estimate_cost(design, n_threads=n_threads).seconds_per_million_records
            found = measured(design, n_threads, told, arguments.shared)
            ratio = told / found
            worst = max(worst, ratio, 1 / ratio)
            print(
                f"{design.dim:7d} {design.n_features:8d} {n_threads:7d} {told:9.3g} {found:9.3g}"
                f"  {ratio:5.2f}  {name}",
                flush=True,
            )
    print(f"worst ratio {worst:.2f}")


if __name__ == "__main__":
    main()
