"""Curves that constants of the code were read off; without a folder, the list of them."""

from __future__ import annotations

import sys

from benchmarks.common import parser_of
from benchmarks.constants import curves, folders, write


def main() -> int:
    """Print the list of curves, or measure those of one folder."""
    parser = parser_of(__doc__)
    parser.add_argument("folder", nargs="?", choices=folders())
    parser.add_argument("names", nargs="*", help="constants; all of the folder if left out")
    parser.add_argument("--write", action="store_true", help="into results/constants.md")
    arguments = parser.parse_args()
    if arguments.folder is None:
        for folder in folders():
            for curve in curves(folder):
                print(f"{folder:<11} {curve.name:<26} {curve.value!s:<12} {curve.about}")
        return 0
    by_name = {curve.name: curve for curve in curves(arguments.folder)}
    unknown = set(arguments.names) - set(by_name)
    if unknown:
        parser.error(f"no curve of {', '.join(sorted(unknown))}; expected {', '.join(by_name)}")
    for name in arguments.names or by_name:
        table = by_name[name].table()
        print(f"{table}\n", flush=True)
        if arguments.write:
            write(arguments.folder, {name: table})
    return 0


if __name__ == "__main__":
    sys.exit(main())
