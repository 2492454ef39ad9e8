"""Regression and classification from second moments: coverage of intervals, and more.

python -m benchmarks supervised coverage          coverage of intervals, generated records
python -m benchmarks supervised coverage --help   its options
"""

from __future__ import annotations

import sys

from benchmarks.supervised import coverage

PARTS = {"coverage": coverage.main}


def main() -> int:
    """Run the part that is named."""
    if len(sys.argv) < 2 or sys.argv[1] not in PARTS:
        print((__doc__ or "").strip())
        return 2
    PARTS[sys.argv.pop(1)]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
