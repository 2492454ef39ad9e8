"""Answers of commands to machines, and the schemas in docs/json that they fit."""

import json
from pathlib import Path

import jsonschema
from referencing import Registry, Resource

SCHEMAS = {
    path.name: json.loads(path.read_text(encoding="utf-8"))
    for path in Path(__file__).parents[1].glob("**/docs/json/*.schema.json")
}
_REGISTRY = Registry().with_resources(
    (name, Resource.from_contents(schema)) for name, schema in SCHEMAS.items()
)


STUDY_KINDS = ("card", "study", "ballot", "closed-list", "tally")


def validated(found, name):
    """Return an answer that fits the schema of that name, which refuses any further field."""
    if name == "inspect" and found["kind"] in STUDY_KINDS:
        name = "inspect-study"
    schema = SCHEMAS[f"{name}.schema.json"]
    validator = jsonschema.Draft202012Validator(schema, registry=_REGISTRY)
    validator.validate(found)
    assert not validator.is_valid({**found, "more": 1})
    return found
