"""Load any privsketch file by its kind: sketches, designs, schemas, models, keys, receipts.

Other distributions add kinds of files in the entry-point group `privsketch.files`. The name of an
entry point is the kind in the file's "format" field. It refers to a class with
`from_bytes(data, what)`, `describe()` and `facts()`, which `privsketch inspect --json` prints.
Classes of binary files have a `MAGIC`; those with companion files have `beside(path)`, which reads
them.

Classes of this library are named by strings, because this folder may not import their modules.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from typing import Any

from privsketch._base.errors import FileError
from privsketch._base.formats import (
    INSECURE_MAGIC,
    SKETCH_MAGIC,
    document_kind,
    marked_kind,
    read_file,
    unmarked_kind,
)
from privsketch._base.plugins import find_plugin, plugin_names

_CLASSES = {
    "sketch": "sketching.sketch:Sketch",
    "design": "design.recipe:Design",
    "schema": "facts.schema:Schema",
    "release": "projection.description:ReleaseDescription",
    "public-key": "signing.keys:PublicKey",
    "cluster-model": "models.clusters:ClusterModel",
    "gaussian-mixture-model": "models.mixture:GaussianMixtureModel",
    "pca-model": "models.components:PCAModel",
    "regression-model": "models.regression:RegressionModel",
    "classifier-model": "models.classifier:ClassifierModel",
    "summary-model": "models.summary:SummaryModel",
}
_LEDGER_MAGIC = b"SQLite format 3\0"
_BINARY = b"\x89priv"
_NOT_LOADED = {  # kinds that cannot be loaded, and what to do instead
    "key": "a secret key; privsketch inspect shows the public one, which ends in .pub",
    "signature": "a signature; privsketch key verify says who signed the file beside it",
}


def load(path: str | os.PathLike[str]) -> Any:
    """Load a privsketch file of any kind.

    Charges: nothing. Files are fully checked, and nothing in them is executed.

    Parameters
    ----------
    path : str or path
        File of a sketch, a design, a schema, a model, a public key or the receipt beside released
        rows; with privsketch-studies, a file of a sealed study too.

    Returns
    -------
    Sketch, Design, Schema, ClusterModel, GaussianMixtureModel, PCAModel, RegressionModel,
    ClassifierModel, SummaryModel, PublicKey, ReleaseDescription, or a class of another distribution

    Examples
    --------
    >>> import tempfile, privsketch as ps
    >>> design = ps.Design.plan(n_components=2, domain=ps.Box(-1, 1, dim=2),
    ...                         budget=ps.Budget(epsilon=1.0), random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     design.save(f"{folder}/study.json")
    ...     ps.load(f"{folder}/study.json") == design
    True
    """
    return with_companions(from_bytes(read_file(path), os.fspath(path)), path)


def with_companions(content: Any, path: str | os.PathLike[str]) -> Any:
    """Add companion files, such as signatures, if the class of the content reads them."""
    return content.beside(path) if hasattr(content, "beside") else content


def from_bytes(data: bytes, what: str) -> Any:
    """Read the bytes of a file; `what` names it in errors."""
    if data.startswith(_LEDGER_MAGIC):
        raise FileError(f"{what}: a SQLite database, such as a ledger; use privsketch ledger show")
    kind = kind_of(data, what)
    if kind in _NOT_LOADED:
        raise FileError(f"{what}: {_NOT_LOADED[kind]}")
    file_class = None if kind is None else _class_of(kind)
    if file_class is None:
        raise FileError(
            f"{what}: not a file of privsketch that this version knows: no sketch, design, schema, "
            "model, public key or receipt. Files of sealed studies need privsketch-studies"
        )
    return file_class.from_bytes(data, what)


def kind_of(data: bytes, what: str) -> str | None:
    """Return the kind of a privsketch file ("sketch", "design", ...), or None for other files."""
    if data.startswith(SKETCH_MAGIC):
        return "sketch"
    if data.startswith(INSECURE_MAGIC):
        return marked_kind("sketch", insecure=True)
    if data.startswith(_BINARY):
        for name in plugin_names(
            "files"
        ):  # classes of JSON files have no MAGIC, and \0 matches none here
            if data.startswith(getattr(_class_of(name), "MAGIC", b"\0")):
                return name
        return None
    kind = document_kind(data, what)
    # Schemas are JSON written by hand, without a "format" field.
    return "schema" if kind is None and b'"columns"' in data else kind


@cache
def _class_of(kind: str) -> Any:
    kind = unmarked_kind(kind)
    if kind in _CLASSES:
        module, _, name = _CLASSES[kind].partition(":")
        return getattr(import_module(f"privsketch.{module}"), name)
    plugin = find_plugin("files", kind)
    return None if plugin is None else plugin.part
