"""How a table is written, as people state it: header, delimiter, quotes, encoding, sheet and more.

All of it is public. Nothing is guessed from content: a guess is made from records, and may turn out
otherwise without one of them.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from privsketch._base.errors import ParameterError, require_count, require_one_of

_TAB = {"\\t": "\t", "tab": "\t"}  # as people write it where they cannot type one
_PAGES = (
    *("ascii", "cp037", "cp1006", "cp1026", "cp1125", "cp1140", "cp1250", "cp1251", "cp1252"),
    *("cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "cp273", "cp424", "cp437"),
    *("cp500", "cp720", "cp737", "cp775", "cp850", "cp852", "cp855", "cp856", "cp857", "cp858"),
    *("cp860", "cp861", "cp862", "cp863", "cp864", "cp865", "cp866", "cp869", "cp874", "cp875"),
    *("hp-roman8", *(f"iso8859-{part}" for part in (*range(1, 12), *range(13, 17)))),
    *("koi8-r", "koi8-t", "koi8-u", "kz1048", "mac-croatian", "mac-cyrillic", "mac-greek"),
    *("mac-iceland", "mac-latin2", "mac-roman", "mac-romanian", "mac-turkish", "palmos"),
    *("ptcp154", "tis-620"),
)
UNICODE = ("utf-8", "utf-16", "utf-16-be", "utf-16-le", "utf-32", "utf-32-be", "utf-32-le")
# Encodings in which a character is one or several bytes, and a line break is never one of several.
MULTIBYTE = (
    *("big5", "big5hkscs", "cp932", "cp949", "cp950", "euc_jis_2004", "euc_jisx0213", "euc_jp"),
    *("euc_kr", "gb18030", "gb2312", "gbk", "shift_jis", "shift_jis_2004", "shift_jisx0213"),
)
# By their names in Python. What is not here could turn text of one record into line breaks (escapes
# like those of unicode_escape and utf-7), or let one record change how others are read (the states
# of ISO 2022).
ENCODINGS = frozenset((*UNICODE, *_PAGES, *MULTIBYTE))


@dataclass(frozen=True, kw_only=True)
class FileFormat:
    """How files are written, and what to do with cells that cannot be read: facts of a `Table`."""

    header: bool | None = None
    delimiter: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"
    sheet: str | None = None
    quotes: bool | None = None
    n_records: int | None = None
    unreadable: str = "error"

    def __post_init__(self) -> None:
        for name in ("header", "quotes"):
            if getattr(self, name) not in (None, True, False):
                raise ParameterError(name, getattr(self, name), "expected True, False or None")
        require_one_of("decimal", self.decimal, (".", ","))
        require_one_of("unreadable", self.unreadable, ("error", "missing"))
        if self.n_records is not None:
            require_count("n_records", self.n_records)
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
    """Return one character that is no part of a number, a quote or a line break."""
    if delimiter is None:
        return None
    character = _TAB.get(delimiter, delimiter) if isinstance(delimiter, str) else ""
    is_one = len(character) == 1 and character.isascii()
    is_one = is_one and (character.isprintable() or character == "\t")
    if not is_one or character.isalnum() or character in '"+-':
        expected = (
            "expected one character, like ';' or '|', or 'tab'; no letter, digit, sign or quote"
        )
        raise ParameterError("delimiter", delimiter, expected)
    return character


def _checked_encoding(encoding: object) -> str:
    """Return the name by which Python calls an encoding."""
    try:
        name = codecs.lookup(encoding).name if isinstance(encoding, str) else ""
    except LookupError:
        name = ""
    name = "utf-8" if name == "utf-8-sig" else name
    if name not in ENCODINGS:
        expected = (
            "expected UTF-8, UTF-16, UTF-32, a code page like 'latin-1' or 'cp1252', or a "
            "multi-byte encoding without states like 'shift_jis' or 'gb18030'"
        )
        raise ParameterError("encoding", encoding, expected, "convert the file to UTF-8 first")
    return name


PLAIN = FileFormat()  # nothing is said
