"""The data flows one way: nothing to the right of the noise can reach a record."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import privsketch

ROOT = Path(privsketch.__file__).parent
FILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))
# Each room imports only from rooms above it. There are no exceptions.
ROOMS = [
    ["errors", "_typing"],
    ["formats", "_parallel"],
    ["domain", "budget"],
    ["features"],
    ["noise"],
    ["design"],
    ["tables"],
    ["kernels"],
    ["sketching"],
    ["models"],
    ["learning"],
    ["clustering"],
    ["projection"],
    ["report"],
    ["_load"],
    ["estimators"],
    ["cli"],
    ["testing"],
]
LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
# What learners, models and reports may not import, directly or not: all that reads records.
READS_RECORDS = (
    "privsketch.tables",
    "privsketch.sketching.build",
    "privsketch.sketching.engines",
    "privsketch.clustering",
    "privsketch.projection",
    "privsketch.estimators",
)


def imported_modules(path):
    """Modules of privsketch that a file imports anywhere, functions included."""
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            while name.startswith("privsketch."):
                if name in MODULES:
                    yield name
                    break
                name = name.rpartition(".")[0]


def room(name):
    return name.split(".")[1]


MODULES = {
    "privsketch." + path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path
    for path in FILES
    if path not in ("__init__.py", "__main__.py")
}


@pytest.mark.parametrize("name", MODULES)
def test_rooms_import_only_from_above(name):
    for other in imported_modules(MODULES[name]):
        if room(other) != room(name):
            assert LEVEL[room(other)] < LEVEL[room(name)], f"{name} imports {other}"


@pytest.mark.mostly_slow(quick_every=12)
@pytest.mark.parametrize(
    "name", [m for m in MODULES if room(m) in {"design", "models", "learning", "report"}]
)
def test_learners_planners_and_reports_cannot_read_records(name):
    reached, waiting = {name}, [name]
    while waiting:
        found = set(imported_modules(MODULES[waiting.pop()])) - reached
        reached |= found
        waiting += found
    assert not [other for other in reached if other.startswith(READS_RECORDS)]


@pytest.mark.parametrize("path", FILES)
def test_guards_survive_optimised_python(path):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert not any(isinstance(node, ast.Assert) for node in ast.walk(tree))


def test_learning_alone_loads_no_reader():
    code = (
        "import sys, privsketch.learning.kmeans.learner, privsketch.report.html;"
        "print([m for m in sys.modules if m in ('privsketch.tables.reading',"
        " 'privsketch.sketching.sums', 'llvmlite', 'opendp')])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
