"""Tables of estimators: checked as scikit-learn does, with errors that quote no record."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import validate_data

from privsketch._base.errors import MissingError, ParameterError, RecordError, TableError
from privsketch._base.formats import as_line
from privsketch.facts.budget import Neighbours
from privsketch.facts.schema import Schema
from privsketch.tables.memory import object_numbers
from privsketch.tables.reading import read_blocks
from privsketch.tables.table import Kind, Table, kind_of


def seen(estimator: Any, X: Any, schema: Schema) -> None:
    """Note the number and the names of the columns of X, which are public.

    A Table has those that it states, or those of the schema.
    """
    if isinstance(X, Table):
        note_columns(estimator, X.columns or names_of(X) or schema.all_names)
        return
    if isinstance(X, str | bytes | os.PathLike):
        raise RecordError(_NO_PATH)
    if kind_of(X) == "spark":
        columns_on_spark(estimator, X)
        return
    _require_frame(X, kind_of(X))
    failure = ""
    try:
        validate_data(estimator, X, reset=True, skip_check_array=True)
    except (ValueError, TypeError) as error:
        failure = _without_values(str(error))
    if failure:
        raise RecordError(failure)


def columns_on_spark(estimator: Any, X: Any) -> int:
    """Note the columns of a Spark DataFrame, as scikit-learn does; return their number."""
    names = list(X.columns)
    if not names:
        raise RecordError("X: the table has no columns")
    note_columns(estimator, names)
    return len(names)


def names_of(table: Table) -> tuple[str | int, ...] | None:
    """Return the columns of a Table by what is stated, or by the names of a frame."""
    if table.columns is not None:
        return tuple(table.columns)
    if table.kind not in ("pandas", "spark"):
        return None
    return tuple(str(name) for name in table.data.columns)


def width_of(table: Table, dim: int | None) -> int:
    """Return the number of columns of a Table: stated, of an array, or the number expected."""
    if table.columns is not None:
        return len(table.columns)
    shape: tuple[int, ...] = getattr(table.data, "shape", ())
    if table.kind in ("array", "pandas", "sparse") and len(shape) == 2:
        return int(shape[1])
    if dim is None:
        raise ParameterError(
            "X: the number of columns is not stated; name them with Table(..., columns=[...]), or "
            "state the `dim` of the domain"
        )
    return dim


def note_columns(estimator: Any, columns: Sequence[str | int]) -> None:
    """Set scikit-learn's attributes: the number of columns, and their names if all have one."""
    estimator.n_features_in_ = len(columns)
    estimator.__dict__.pop("feature_names_in_", None)
    if all(isinstance(name, str) for name in columns):
        estimator.feature_names_in_ = np.asarray(list(columns), dtype=object)


def validated(
    estimator: Any,
    X: Any,
    *,
    reset: bool,
    sparse: bool = False,
    kind: Kind | None = None,
    neighbours: Neighbours | None = None,
) -> Any:
    """Return X as an array; errors never quote a value of a record.

    `reset` is for `fit`, which has its own rule for missing values. With `sparse`, matrices of
    SciPy are allowed and stay as they are. `neighbours` are those of the release of these records,
    None where nothing is released.
    """
    if isinstance(X, Table):
        return _array_of(estimator, Table.of(X), reset=reset, neighbours=neighbours)
    kind = kind_of(X) if kind is None else kind
    if kind == "spark":
        raise RecordError(
            "X: a Spark DataFrame; `fit` of clusters, components and mixtures reads one, "
            "everything else needs an array or a data frame that is here"
        )
    # Dates would be converted silently, and values under a mask would be read.
    _require_frame(X, kind)
    if reset and kind == "pandas":
        _require_number_columns(X)
    kinds = [getattr(X, "dtype", None), *getattr(X, "dtypes", ())]
    if any(getattr(kind, "kind", "f") not in "fiubOc" for kind in kinds):
        raise RecordError(_NOT_NUMERIC)
    masked = isinstance(X, list | tuple) and any(isinstance(x, np.ma.MaskedArray) for x in X)
    if masked or isinstance(X, np.ma.MaskedArray):
        raise RecordError("X: masked arrays are not supported; fill the mask with NaN")
    if isinstance(X, str | bytes | os.PathLike):
        raise RecordError(_NO_PATH)
    keep_missing = reset or estimator.missing == "center"
    table = _numbers_of_objects(X, kind)
    failure: Exception | None = None
    try:
        array = validate_data(
            estimator,
            table,
            reset=reset,
            accept_sparse=["csr", "coo"] if sparse else False,
            dtype=[np.float64, np.float32],
            ensure_all_finite=not keep_missing,
            ensure_min_samples=0 if reset else 1,
        )
    except (ValueError, TypeError, OverflowError) as error:
        text = str(error)
        if isinstance(error, TypeError) and "sparse" in text.lower():
            raise  # scikit-learn's message about sparse input quotes nothing
        failing = CellError if isinstance(error, TypeError) else RecordError
        failure = failing(_without_values(text))
    if failure is not None:
        raise failure  # outside of the except block: scikit-learn's error is not its context
    return array if sparse and hasattr(array, "tocsr") else np.asarray(array)


def _array_of(
    estimator: Any, table: Table, *, reset: bool, neighbours: Neighbours | None
) -> npt.NDArray[np.float64]:
    """Return the records of a Table as an array, by the columns that `fit` has seen."""
    expected = None if reset else estimator.n_features_in_
    width = width_of(table, expected)
    if reset:
        note_columns(estimator, names_of(table) or range(width))
    elif width != expected:
        raise RecordError(f"X has {width} columns, {type(estimator).__name__} expects {expected}")
    names = None if reset else getattr(estimator, "feature_names_in_", None)
    names = None if table.columns is not None else names
    selection = table.selection(width, names, neighbours=neighbours)
    blocks = [np.asarray(block, np.float64) for block in read_blocks(table, selection)]
    array = np.concatenate([np.empty((0, width)), *blocks])
    is_finite = np.isfinite(array).all(axis=0)
    if not reset and estimator.missing == "error" and not is_finite.all():
        raise MissingError(int(np.argmin(is_finite)))
    return array


def _require_frame(X: Any, kind: Kind) -> None:
    """Refuse a Series of pandas, which has rows and no columns."""
    if kind == "pandas" and X.ndim == 1:
        raise TableError("X: expected a table, got a Series, which is one column: use X.to_frame()")


def _require_number_columns(frame: Any) -> None:
    """Refuse a frame with columns of text or dates, and suggest a schema."""
    for name, kind in zip(frame.columns, frame.dtypes, strict=True):
        if getattr(kind, "kind", "O") in "fiubc" or kind == np.dtype(object):
            continue  # objects are read one by one
        raise RecordError(_not_numeric(str(name), is_date=getattr(kind, "kind", "O") == "M"))


def _not_numeric(name: str, *, is_date: bool = False) -> str:
    """Return the message about a column that is not numeric, with the line for a schema."""
    line = f"ps.Category({name!r}, ['...', '...'])"
    if is_date:
        line = f"ps.Date({name!r}, '2020-01-01', '2025-12-31')"
    kind = "a date" if is_date else "text"
    return (
        f"X: column {name!r} is not numeric but {kind}; leave it out, or describe the table by "
        f"domain=ps.Schema([...]) with {line}, in which its public values or bounds are filled in"
    )


def _numbers_of_objects(X: Any, kind: Kind) -> Any:
    """Return X with Python objects read one by one, as numbers or missing values.

    scikit-learn converts a column as a whole: a cell that is not a float would stop all others,
    and a date would become a number.
    """
    if kind == "pandas":
        kinds = X.dtypes
        indices = [index for index, kind in enumerate(kinds) if kind.kind == "O"]
        numbers = [
            _object_numbers(X.iloc[:, index].to_numpy(), _not_numeric(str(X.columns[index])))
            for index in indices
        ]
        X = X.copy() if indices else X
        for index, column in zip(indices, numbers, strict=True):
            X.isetitem(index, column)
        return X
    if hasattr(X, "tocsr"):
        return X
    is_array = True
    try:
        array = np.asarray(X)
    except ValueError:  # ragged rows: scikit-learn refuses them
        return X
    except Exception:  # errors of other libraries may quote a cell
        is_array = False
    if not is_array:
        raise RecordError(
            f"X: {type(X).__name__} cannot be read as a table of numbers; give an array or a data "
            "frame, or describe the table by domain=ps.Schema([...])"
        )
    if array.dtype.kind in "mMUS":
        raise RecordError(_NOT_NUMERIC)
    return _object_numbers(array) if array.dtype == object and array.ndim == 2 else X


def _object_numbers(cells: Any, otherwise: str = "") -> npt.NDArray[np.float64]:
    try:
        return object_numbers(cells)
    except RecordError:  # it quotes nothing
        raise CellError(otherwise or _NOT_NUMERIC) from None


_NO_PATH = "X: expected an array or a data frame; privsketch.sketch and the commands read files"
_NOT_NUMERIC = (
    "X: a column is not numeric; argument must be neither a string nor another object but a "
    "number in every cell"
)


class CellError(RecordError, TypeError):
    """Cells of no number type: scikit-learn's contract asks for a TypeError."""


# Messages of scikit-learn that name shapes and columns only.
_HARMLESS = ("X has ", "Found array with ", "The feature names should match")
_MESSAGES = (
    ("inhomogeneous", "X: rows differ in their number of cells"),
    ("feature names", "X: column names must all be texts, or none of them"),
    ("duplicate", "X: a column name occurs twice"),
    (
        "1D array",
        "Expected 2D array, got 1D array instead. Reshape your data: "
        "X.reshape(-1, 1) for one column, X.reshape(1, -1) for one record",
    ),
    ("scalar array", "Expected 2D array, got a scalar. Reshape your data into a table"),
    ("Complex data", "Complex data not supported: X must be a table of real numbers"),
    ("dim 3", "Found array with dim 3. X must be a table with rows and columns"),
)


def _without_values(text: str) -> str:
    """Return a message of scikit-learn without the records it may quote."""
    if text.startswith("The feature names should match"):
        return text
    if text.startswith("Input X contains "):
        what = "NaN" if "NaN" in text else "infinity"
        return (
            f"Input X contains {what}: leave such rows out, use `missing='center'`, which puts "
            "such values at the center of the domain, or describe the table by a schema"
        )
    for part, message in _MESSAGES:
        if part in text:
            return message
    if text.startswith(_HARMLESS):
        return text
    return _NOT_NUMERIC


def option_text(name: str, value: Any) -> str:
    """Return an option as it was stated, in one line; arrays and functions in short."""
    if callable(value):
        return f"{name}={as_line(getattr(value, '__name__', type(value).__name__))}"
    if isinstance(value, np.ndarray | list):
        return f"{name}=an array of shape {np.shape(value)}"
    return f"{name}={value!r}"


def target_cells(y: Any) -> Any:
    """Return the cells of y, one for each row of X: an array (n,) or a Series of pandas.

    Cells of a list or another sequence are read one by one, as those of a frame: none decides over
    others.
    """
    if kind_of(y) == "pandas" and y.ndim == 2:
        cells = y.iloc[:, 0] if y.shape[1] == 1 else y
    elif kind_of(y) == "pandas" or isinstance(y, np.ma.MaskedArray):
        cells = y
    elif isinstance(y, Sequence) and not isinstance(y, str | bytes) and not hasattr(y, "__array__"):
        cells = np.empty(len(y), dtype=object)
        for place, cell in enumerate(y):
            cells[place] = cell
    else:
        cells = _cells_of(y)
    if cells.ndim == 2 and cells.shape[1] == 1:
        warnings.warn(_COLUMN_VECTOR, DataConversionWarning, stacklevel=4)
        return cells[:, 0]
    if cells.ndim != 1:
        raise TableError(f"y should be a 1d array, got one of {cells.ndim} dimensions instead")
    return cells


def _cells_of(y: Any) -> npt.NDArray[Any]:
    """Return anything else that is an array; errors of others may quote a cell."""
    if not hasattr(y, "__array__") or hasattr(y, "tocsr"):
        raise TableError("y should be a 1d array of one number or label for each row of X")
    array = None
    with suppress(Exception):
        array = np.asarray(y)
    if array is None:
        raise TableError(f"y: {type(y).__name__} cannot be read as an array")
    return array


_COLUMN_VECTOR = "A column-vector y was passed when a 1d array was expected"
