"""The data flows one way: nothing to the right of the noise can reach a record."""

import ast
import inspect
import re
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

import privsketch
from tests.commands import modules_after

ROOT = Path(privsketch.__file__).parent
REPOSITORY = Path(__file__).parents[1]
FILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))
# Each folder imports only from folders above it. There are no exceptions.
ROOMS = [
    "_base",
    "facts",
    "features",
    "noise",
    "design",
    "signing",
    "ledger",
    "models",
    "tables",
    "kernels",
    "sketching",
    "learning",
    "clustering",
    "projection",
    "pages",
    "estimators",
    "cli",
    "testing",
]
LEVEL = {room: level for level, room in enumerate(ROOMS)}
# What learners, models and reports may not import, directly or not: all that reads records.
READS_RECORDS = (
    "privsketch.tables",
    "privsketch.tables.survey",
    "privsketch.sketching.build",
    "privsketch.sketching.engines",
    "privsketch.clustering",
    "privsketch.projection",
    "privsketch.estimators",
)


@cache
def imported_modules(path):
    """Return the modules of privsketch that a file imports anywhere, functions included."""
    return frozenset(_imported_modules(path))


def _imported_modules(path):
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
    if path != "__init__.py"
}


@pytest.mark.parametrize("name", MODULES)
def test_rooms_import_only_from_above(name):
    for other in imported_modules(MODULES[name]):
        if room(other) != room(name):
            assert LEVEL[room(other)] < LEVEL[room(name)], f"{name} imports {other}"


@pytest.mark.mostly_slow(quick_every=12)
@pytest.mark.parametrize(
    "name",
    [m for m in MODULES if room(m) in {"design", "models", "learning", "pages"}],
)
def test_learners_planners_and_reports_cannot_read_records(name):
    reached, waiting = {name}, [name]
    while waiting:
        found = set(imported_modules(MODULES[waiting.pop()])) - reached
        reached |= found
        waiting += found
    assert not [other for other in reached if other.startswith(READS_RECORDS)]


def test_nothing_but_commands_can_look_at_a_table():
    """What a check finds is exact: it stays away from all that is released."""
    exact = {"privsketch.tables.survey.check", "privsketch.tables.survey.result"}
    for name, path in MODULES.items():
        if set(imported_modules(path)) & exact:
            assert room(name) == "cli" or name in exact, name
    for name, path in MODULES.items():  # bounds are bought where somebody asks for them
        if "privsketch.tables.survey.bounds" in imported_modules(path):
            assert room(name) == "cli", name
    told = ("noise", "budget", "sketching", "models", "report")
    for name in exact | {"privsketch.tables.survey.cells", "privsketch.tables.survey.counts"}:
        assert not [m for m in imported_modules(MODULES[name]) if room(m) in told]


@pytest.mark.parametrize("path", FILES)
def test_guards_survive_optimised_python(path):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert not any(isinstance(node, ast.Assert) for node in ast.walk(tree))


def test_learning_alone_loads_no_reader():
    loaded = modules_after(
        "import privsketch.learning.kmeans.learner, privsketch.pages.report.html"
    )
    heavy = {"privsketch.tables.reading", "privsketch.sketching.sums", "llvmlite", "opendp"}
    assert "privsketch.models.clusters" in loaded
    assert not loaded & heavy


# --- a house that can be seen at a glance --------------------------------------------------------

MAX_FILES = 15  # of a folder


def test_folders_are_small_and_names_do_not_repeat_them():
    for folder in {path.parent for path in ROOT.rglob("*.py")}:
        names = [path.stem for path in folder.glob("*.py")]
        assert len(names) <= MAX_FILES, folder
        assert not [name for name in names if name.startswith(folder.name) and folder != ROOT]


def test_every_room_says_what_it_is_and_stands_in_the_architecture():
    page = (REPOSITORY / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for name in LEVEL:
        assert f"`{name}`" in page or f"`{name}/`" in page, name
        if (ROOT / name).is_dir():
            module = ast.parse((ROOT / name / "__init__.py").read_text(encoding="utf-8"))
            assert ast.get_docstring(module), name


# One thing, one word: what these would be called here.
OTHER_WORDS = {
    "most": "max",
    "least": "min",
    "starts": "init",
    "centre": "center",
    "centroid": "center",
    "neighbors": "neighbours",
    "sigma": "scale",
    "dimension": "dim",
}


def public_names():
    """Names of what is exported, of its parameters and of its attributes."""
    for name in privsketch.__all__:
        thing = getattr(privsketch, name)
        yield name
        members = [thing]
        if inspect.isclass(thing):
            own = {key: value for key, value in vars(thing).items() if not key.startswith("_")}
            yield from (key for key in own if key.islower())
            members += [getattr(value, "__func__", value) for value in own.values()]
        for member in members:
            if callable(member):
                with suppress(ValueError):
                    yield from inspect.signature(member).parameters


def words_of(name):
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return [word for word in apart.lower().split("_") if word]


def test_public_names_use_one_word_for_one_thing():
    for name in public_names():
        assert name != "map", "say feature_map"
        for word in words_of(name):
            assert word not in OTHER_WORDS, f"{name}: say {OTHER_WORDS[word]}"


@pytest.mark.parametrize("name", sorted(privsketch.__all__))
def test_what_is_exported_is_documented(name):
    thing = getattr(privsketch, name)
    page = inspect.getdoc(thing) or ""
    assert page.strip(), name
    if inspect.ismodule(thing) or (inspect.isclass(thing) and issubclass(thing, BaseException)):
        return
    given = [p for p in inspect.signature(thing).parameters if p not in ("self", "args", "kwargs")]
    if inspect.isclass(thing):
        missing = [p for p in given if not re.search(rf"\b{p}\b", page)]
        assert not missing, f"{name}: {missing}"
