"""Regression and classification from second moments: accuracy, coverage of intervals, and more.

python -m benchmarks supervised adassp            regression beside AdaSSP, on the sets of its paper
python -m benchmarks supervised tables            real tables with labels, and diffprivlib
python -m benchmarks supervised coverage          coverage of intervals, generated records
python -m benchmarks supervised summary           coverage of means, shares and groups, generated
python -m benchmarks supervised PART --help       options of a part
"""

from __future__ import annotations

import sys

from benchmarks.supervised import adassp, coverage, summary, tables

PARTS = {
    "adassp": adassp.main,
    "tables": tables.main,
    "coverage": coverage.main,
    "summary": summary.main,
}


def main() -> int:
    """Run the part that is named."""
    if len(sys.argv) < 2 or sys.argv[1] not in PARTS:
        print((__doc__ or "").strip())
        return 2
    PARTS[sys.argv.pop(1)]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
