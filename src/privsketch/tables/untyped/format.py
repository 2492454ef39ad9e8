"""How files are written, as people state it: header, delimiter, decimal mark, encoding, sheet.

All of it is public. Nothing is guessed from content: a guess is made from records, and may turn out
otherwise without one of them.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from privsketch.errors import ParameterError, require_one_of

_TAB = {"\\t": "\t", "tab": "\t"}  # as people write it where they cannot type one
# Codecs of Python's that are no encodings of files, or read line breaks out of other letters.
_NO_FILES = frozenset({"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined"})


@dataclass(frozen=True)
class FileFormat:
    """What is said of all files of a table that do not say it themselves.

    Parameters
    ----------
    header : bool, optional
        Whether the first line of text files, or row of a sheet, has names. If left out it has, and
        is refused if it has numbers. False: it is a record, and columns are called "0", "1", ...
    delimiter : str, optional
        What separates the cells of a line; commas if left out, tabs in .tsv files.
    decimal : {".", ","}
        What stands before the decimals of a number.
    encoding : str
        Of text files, by its name in Python: "utf-8", "latin-1", "cp1252", "utf-16".
    sheet : str, optional
        Which sheet of a workbook to read; there must be just one if left out.
    """

    header: bool | None = None
    delimiter: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"
    sheet: str | None = None

    def __post_init__(self) -> None:
        if self.header not in (None, True, False):
            raise ParameterError("header", self.header, "expected True, False or None")
        require_one_of("decimal", self.decimal, (".", ","))
        object.__setattr__(self, "delimiter", _checked_delimiter(self.delimiter))
        object.__setattr__(self, "encoding", _checked_encoding(self.encoding))
        if self.delimiter == self.decimal:
            raise ParameterError(
                "delimiter",
                self.delimiter,
                f"it is the decimal mark too; say `decimal={_other(self.decimal)!r}`",
            )
        if not (self.sheet is None or (isinstance(self.sheet, str) and self.sheet)):
            raise ParameterError("sheet", self.sheet, "expected the name of a sheet")


def _other(decimal: str) -> str:
    return "," if decimal == "." else "."


def _checked_delimiter(delimiter: object) -> str | None:
    """One character that is no part of a number, a quote or a line break."""
    if delimiter is None:
        return None
    found = _TAB.get(delimiter, delimiter) if isinstance(delimiter, str) else ""
    is_one = len(found) == 1 and found.isascii() and (found.isprintable() or found == "\t")
    if not is_one or found.isalnum() or found in '"+-':
        expected = (
            "expected one character, like ';' or '|', or 'tab'; no letter, digit, sign or quote"
        )
        raise ParameterError("delimiter", delimiter, expected)
    return found


def _checked_encoding(encoding: object) -> str:
    """The name by which Python calls it."""
    try:
        found = codecs.lookup(encoding) if isinstance(encoding, str) else None
    except LookupError:
        found = None
    is_text = found is not None and getattr(found, "_is_text_encoding", True)
    if found is None or not is_text or found.name in _NO_FILES or found.incrementaldecoder is None:
        expected = "expected an encoding of text, like 'utf-8', 'latin-1', 'cp1252' or 'utf-16'"
        raise ParameterError("encoding", encoding, expected)
    return "utf-8" if found.name == "utf-8-sig" else found.name


PLAIN = FileFormat()  # nothing is said
