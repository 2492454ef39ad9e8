"""The list of benchmarks, and one of them by name: `python -m benchmarks NAME [OPTION]...`."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

NAMES = (
    "accuracy",
    "cells",
    "collector",
    "compare",
    "compare_sites",
    "constants",
    "cost",
    "cuda",
    "decoders",
    "distances",
    "drowned",
    "engines",
    "forecast",
    "interruptions",
    "labels",
    "ledger",
    "limits",
    "masks",
    "memory",
    "mixtures",
    "noise_to_signal",
    "number",
    "pca",
    "persons",
    "processors",
    "projection_noise",
    "ratios",
    "regret",
    "release",
    "sealed",
    "sealed_files",
    "sealing",
    "sparse",
    "speed",
    "supervised",
    "trust",
    "worlds",
)


def title(name: str) -> str:
    """First sentence of a benchmark's own description."""
    folder = Path(__file__).parent
    path = folder / f"{name}.py"
    source = path if path.is_file() else folder / name / "__main__.py"
    return (ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or "").split("\n")[0]


def main() -> int:
    """Run what is asked for, or list what there is."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print("python -m benchmarks NAME [OPTION]...\n")
        for name in NAMES:
            print(f"{name:<17} {title(name)}")
        return 0
    name = sys.argv.pop(1)
    if name not in NAMES:
        print(f"{name!r}: expected one of {', '.join(NAMES)}", file=sys.stderr)
        return 2
    runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
