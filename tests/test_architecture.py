"""The data flows one way: nothing to the right of the noise can reach a record."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import privsketch

ROOT = Path(privsketch.__file__).parent
FILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))
# Each room imports only from rooms above it.
ROOMS = [
    ["errors", "compiled"],
    ["domain", "budget", "threads"],
    ["features"],
    ["noise"],
    ["formats"],
    ["release"],
    ["design"],
    ["planning", "sketches"],
    ["merging"],
    ["learning"],
    ["report"],
    ["readers", "writers"],
    ["sketching", "release_files"],
    ["engines"],
    ["clustering"],
    ["baselines"],
    ["methods"],
    ["estimators"],
    ["reproduce"],
    ["cli"],
    ["testing"],
]
LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
# Design.plan is the door to the planner, sketch the one to the engines; they open on call.
LATE = {("design", "planning"), ("sketching", "engines")}
READS_RECORDS = {
    "readers",
    "sketching",
    "release_files",
    "engines",
    "release",
    "clustering",
    "baselines",
    "methods",
    "estimators",
    "reproduce",
    "cli",
    "testing",
}


def imports(path):
    """Rooms of privsketch that a file imports anywhere, functions included."""
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        modules = []
        if isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        for module in modules:
            if module.startswith("privsketch."):
                yield module.split(".")[1]


def room(path):
    return path.split("/")[0].removesuffix(".py")


@pytest.mark.parametrize(
    "path", [path for path in FILES if path not in ("__init__.py", "__main__.py")]
)
def test_rooms_import_only_from_above(path):
    for other in imports(path):
        if other != room(path) and (room(path), other) not in LATE:
            assert LEVEL[other] < LEVEL[room(path)], f"{path} imports {other}"


@pytest.mark.parametrize(
    "path", [p for p in FILES if room(p) in {"learning", "planning", "report"}]
)
def test_learners_planners_and_reports_cannot_read_records(path):
    assert not READS_RECORDS & set(imports(path))


@pytest.mark.parametrize("path", FILES)
def test_guards_survive_optimised_python(path):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert not any(isinstance(node, ast.Assert) for node in ast.walk(tree))


def test_learning_alone_loads_no_reader():
    code = (
        "import sys, privsketch.learning.kmeans, privsketch.report.html;"
        "print([m for m in sys.modules if m in ('privsketch.readers',"
        " 'privsketch.sketching.blocks', 'llvmlite', 'opendp')])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
