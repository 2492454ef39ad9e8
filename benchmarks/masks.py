"""What masks cost and save: time per record against the same sketch without masks.

Ratios are measured in one run, one thread, the smallest of several turns. Scattered masks
(uniform, Poisson) need the whole sketch and secret bits for every feature; blocks and
records save what they leave out. `sketching/cost.py` holds the numbers that plans use.

    python -m benchmarks masks
"""

from __future__ import annotations

import numpy as np

import privsketch as ps
from benchmarks.common import least_seconds, parser_of
from privsketch.features.fixedpoint import Quantiser
from privsketch.features.masks import Masks
from privsketch.sketching.sums import RecordSums

CASES = [  # columns, features, law
    (10, 1000, "multi-scale"),
    (64, 4096, "multi-scale"),
    (64, 4096, "structured"),
    (1024, 8192, "multi-scale"),
    (1024, 8192, "structured"),
]


def laws(n_features: int, block: int) -> dict[str, str | None]:
    eighth = max(block, n_features // 8 // block * block)
    return {
        "none": None,
        f"uniform:{n_features // 10}": f"uniform:{n_features // 10}",
        "poisson:0.1": "poisson:0.1",
        f"block:{eighth}": f"block:{eighth}",
        "records:0.1": "records:0.1",
    }


def nanoseconds(design: ps.Design, n_records: int, turns: int) -> float:
    """Per record, for quantised records and one thread."""
    rng = np.random.default_rng(0)
    records = rng.uniform(-1, 1, (n_records, design.dim))
    quantised = Quantiser(design.domain)(records)
    summer = RecordSums(design)
    summer(quantised[:64])

    def work() -> None:
        for first in range(0, n_records, 8192):
            summer(quantised[first : first + 8192])

    return least_seconds(work, turns) / n_records * 1e9


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--turns", type=int, default=5)
    turns = parser.parse_args().turns
    print(f"{'columns':>7} {'features':>8} {'frequencies':12} {'masks':13} {'ns/record':>10} ratio")
    for dim, n_features, law in CASES:
        whole = None
        block = 64 if dim < 64 and law == "structured" else dim
        if n_features % block:
            n_features = n_features // block * block
        for name, text in laws(n_features, block).items():
            design = ps.Design.plan(
                n_components=2,
                domain=ps.Box(-1, 1, dim=dim),
                budget=ps.Budget(1.0, 1e-6),
                n_features=n_features,
                frequencies=law,
                masks=Masks.parse(text),
                random_state=0,
            )
            n_records = max(2048, min(40_000, 40_000_000 // (dim * n_features // 64)))
            cost = nanoseconds(design, n_records, turns)
            whole = whole or cost
            print(
                f"{dim:7d} {n_features:8d} {law:12} {name:13} {cost:10.0f} {cost / whole:5.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
