"""The schemas in docs/json are those of the types of answers."""

from tools.json_schemas import FOLDERS, ROOT, as_text, schemas


def test_make_docs_would_change_no_schema():
    generated = {ROOT / path: as_text(schema) for path, schema in schemas().items()}
    committed = {
        path: path.read_text(encoding="utf-8")
        for folder in FOLDERS.values()
        for path in (ROOT / folder).glob("*.schema.json")
    }
    assert committed.keys() == generated.keys(), "run `make docs`"
    changed = [path.name for path, text in generated.items() if committed[path] != text]
    assert changed == [], "run `make docs`"
