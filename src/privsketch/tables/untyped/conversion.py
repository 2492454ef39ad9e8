"""Texts as values: which spellings are missing, which are numbers.

What becomes of a text depends on that text alone. `cast_texts` tries all of them at once, which is
fast, and one by one where that fails; both agree on every text.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.bool_]
# Spellings of a missing value: those of Arrow and pandas, and as people write them.
NULLS = [
    *("", " ", ".", "na", "NA", "n/a", "N/A", "#NA", "#N/A", "#N/A N/A", "<NA>", "NaT"),
    *("nan", "NaN", "-nan", "-NaN", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
    *("null", "Null", "NULL", "none", "None", "NONE"),
]
MISSING_WORDS = sorted({text.strip().lower() for text in NULLS})
# What Arrow takes for a number; nothing else is one.
_NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:inf|infinity|nan))$"


def numbers_in_text(array: Any, decimal: str = ".") -> tuple[Any, Bits | None]:
    """Return cells of text files as their reader takes them for numbers, and which are none.

    The numbers are an Arrow array of float64, null where a cell is missing or no number.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    missing = pc.is_in(array, value_set=pa.array(NULLS, array.type))
    known = pc.if_else(missing, pa.scalar(None, array.type), array)
    texts = pc.utf8_trim(known, " \t")
    if decimal != ".":  # a point is no part of a number then
        texts = pc.replace_substring(pc.replace_substring(texts, ".", "?"), decimal, ".")
    return cast_texts(texts, pa.float64(), _NUMBER)


def number_in_text(text: str) -> float | None:
    """Return the number in one cell; None if it is missing or no number."""
    if text in NULLS:
        return None
    text = text.strip(" \t")
    return float(text) if re.match(_NUMBER, text, re.ASCII) else None


def cast_texts(texts: Any, kind: Any, looks: str) -> tuple[Any, Bits | None]:
    """Return texts as another type, null where that fails, and where it does; None if nowhere.

    Only what `looks` like it, a regular expression, is tried; it must match all that Arrow casts.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        return texts.cast(kind), None
    except pa.ArrowInvalid:
        pass
    codes = texts.dictionary_encode()
    words = codes.dictionary
    good = bits(pc.match_substring_regex(words, looks))
    waiting = [np.flatnonzero(good)]
    while waiting:
        places = waiting.pop()
        try:
            words.take(pa.array(places)).cast(kind)
        except pa.ArrowInvalid:
            middle = len(places) // 2
            waiting += [places[:middle], places[middle:]] if middle else []
            good[places if not middle else places[:0]] = False
    values = pc.if_else(pa.array(good), words, pa.scalar(None, words.type)).cast(kind)
    unfit = bits(texts.is_valid()) & ~bits(pa.array(good).take(codes.indices))
    return values.take(codes.indices), unfit


def bits(array: Any) -> Bits:
    """Return an Arrow array of truth values as one of NumPy's; null is False."""
    return np.asarray(array.cast("uint8").fill_null(0)).astype(np.bool_)
