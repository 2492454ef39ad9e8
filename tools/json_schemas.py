"""Generate docs/json and studies/docs/json: a JSON Schema for the --json answer of every command.

The types are in `tools.answers`. Their docstrings, and the strings below their fields, become
descriptions. Run `python -m tools.json_schemas`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import click

from privsketch.cli.main import main
from tools.answers.parts import OPEN

ROOT = Path(__file__).parents[1]
FOLDERS = {"privsketch": "docs/json", "privsketch_studies": "studies/docs/json"}
COMMON = {"privsketch": "common", "privsketch_studies": "study-common"}
MODULES = [
    importlib.import_module(name)
    for name in (
        "tools.answers.parts",
        "tools.answers.tables",
        "tools.answers.files",
        "tools.answers.studies",
    )
]
# Answers that belong to no command of their own.
OTHERS = {
    "failure": ("FailureAnswer", "Any command that fails, with --json"),
    "inspect-study": ("InspectStudyAnswer", "privsketch inspect --json, files of a sealed study"),
}
PRIMITIVES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def schemas() -> dict[Path, dict[str, Any]]:
    """Return all schemas by the path of their file, relative to the repository."""
    answers = {name: getattr(module, name) for module in MODULES for name in vars(module)}
    generator = _Generator()
    files = {}
    for command in commands():
        name = "".join(word.capitalize() for word in re.split("[ -]", command)) + "Answer"
        answer = generator.answer(answers[name], {"const": command})
        path = _path(answers[name], command.replace(" ", "-"))
        files[path] = _file(path, f"privsketch {command} --json", answer)
    for file, (name, title) in OTHERS.items():
        path = _path(answers[name], file)
        command_schema = {"const": file.partition("-")[0]} if "-" in file else None
        files[path] = _file(path, title, generator.answer(answers[name], command_schema))
    for package, parts in generator.parts().items():
        path = Path(FOLDERS[package], f"{COMMON[package]}.schema.json")
        files[path] = _file(
            path, "Parts that answers share", {"$defs": dict(sorted(parts.items()))}
        )
    return files


def commands(group: click.Group = main, names: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the names of all commands of the tree."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*names, name))
        else:
            yield " ".join((*names, name))


class _Generator:
    """Converts types to schemas; object types inside of answers become shared parts."""

    def __init__(self) -> None:
        self._descriptions = _field_descriptions()
        self._parts: dict[type, dict[str, Any]] = {}

    def answer(self, answer: Any, command: dict[str, Any] | None) -> dict[str, Any]:
        """Return the schema of an answer, or of alternatives; `command` is that of its field."""
        if is_typeddict(answer):
            schema = self._object(answer)
            if command is not None:
                schema["properties"]["command"] |= command
                del schema["properties"]["command"]["type"]
            return schema
        return {"oneOf": [self.answer(one, command) for one in get_args(answer)]}

    def parts(self) -> dict[str, dict[str, Any]]:
        """Return the schemas of all parts by package and name."""
        by_package: dict[str, dict[str, Any]] = {}
        for part, schema in self._parts.items():
            by_package.setdefault(_package(part), {})[part.__name__] = schema
        return by_package

    def _object(self, cls: Any) -> dict[str, Any]:
        hints = get_type_hints(cls, include_extras=True)
        properties, required = {}, []
        for name, hint in hints.items():
            if get_origin(hint) is NotRequired:
                (hint,) = get_args(hint)
            else:
                required.append(name)
            description = self._descriptions[cls.__name__].get(name)
            properties[name] = self._type(hint) | (
                {"description": description} if description else {}
            )
        schema: dict[str, Any] = {
            "description": inspect.cleandoc(cls.__doc__),
            "type": "object",
            "required": required,
            "properties": properties,
        }
        return schema if cls in OPEN else {**schema, "additionalProperties": False}

    def _type(self, hint: Any) -> dict[str, Any]:
        origin, arguments = get_origin(hint), get_args(hint)
        if hint is Any:
            return {}
        if hint in PRIMITIVES:
            return {"type": PRIMITIVES[hint]}
        if is_typeddict(hint):
            return self._reference(hint)
        if origin is Annotated:
            return self._type(arguments[0]) | dict(arguments[1:])
        if origin is Literal:
            return {"const": arguments[0]} if len(arguments) == 1 else {"enum": list(arguments)}
        if origin is list:
            return {"type": "array", "items": self._type(arguments[0])}
        if origin is dict:
            return {"type": "object", "additionalProperties": self._type(arguments[1])}
        if origin in (Union, types.UnionType):
            alternatives = [self._type(one) for one in arguments]
            if all(one.keys() == {"type"} for one in alternatives):
                return {"type": [one["type"] for one in alternatives]}
            return {"anyOf": alternatives}
        raise TypeError(f"{hint}: no JSON Schema for this type")

    def _reference(self, part: Any) -> dict[str, Any]:
        if part not in self._parts:
            self._parts[part] = {}  # a part may contain itself
            self._parts[part] |= self._object(part)
        return {"$ref": f"{COMMON[_package(part)]}.schema.json#/$defs/{part.__name__}"}


def _field_descriptions() -> dict[str, dict[str, str]]:
    """Return the strings below the fields of each class, with those of its bases."""
    descriptions: dict[str, dict[str, str]] = {}
    for module in MODULES:
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.ClassDef):
                fields = descriptions[node.name] = {}
                for base in node.bases:
                    fields |= descriptions.get(ast.unparse(base), {})
                for field, text in zip(node.body, node.body[1:], strict=False):
                    if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                        fields[ast.unparse(field.target)] = ast.literal_eval(text.value)
    return descriptions


def _package(cls: Any) -> str:
    """Return the distribution of a type, of the last one for a union."""
    while not is_typeddict(cls):
        cls = get_args(cls)[-1]
    return "privsketch_studies" if cls.__module__ == "tools.answers.studies" else "privsketch"


def _path(answer: Any, name: str) -> Path:
    return Path(FOLDERS[_package(answer)], f"{name}.schema.json")


def _file(path: Path, title: str, schema: dict[str, Any]) -> dict[str, Any]:
    draft = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": draft, "$id": path.name, "title": title, **schema}


def as_text(schema: dict[str, Any]) -> str:
    """Return a schema as its file has it."""
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    for folder in FOLDERS.values():
        for path in (ROOT / folder).glob("*.schema.json"):
            path.unlink()
    for path, schema in schemas().items():
        (ROOT / path).write_text(as_text(schema), encoding="utf-8")
