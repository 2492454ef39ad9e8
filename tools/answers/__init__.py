"""Types of the objects that commands print with --json; docs/json is generated from them.

The answer of `privsketch ledger show` is `LedgerShowAnswer`, and so on for every command. A pair
in `Annotated` is a further keyword of JSON Schema. `make docs` writes the schemas
(tools/json_schemas.py), a test compares them with these types, and tests/cli/test_json.py
validates an answer of every command. No command imports this module when it runs.
"""
