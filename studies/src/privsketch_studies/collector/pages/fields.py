"""Fields for files: which files each takes, what is sent, and the bytes that are allowed.

A script reads a file from its first byte to its last before it is sent (upload.js), and a field
stays disabled without it: no file leaves a browser that nothing has looked at. For other programs
the collector stops reading at the first bytes that no such file has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from privsketch._base.formats import MAX_JSON_BYTES
from privsketch_studies.collector.kinds import (
    SKETCH,
    binary_shape,
    endings_of,
    json_start,
    phrase_of,
    starts_of,
)
from privsketch_studies.collector.pages.words import KIND_NAMES


@dataclass(frozen=True)
class FileField:
    """Field of a form for a file.

    Attributes
    ----------
    name, label : str
    what : str
        What the field takes, with an article.
    hint : str
        What is sent, and what it reveals.
    endings : tuple of str
        Endings of file names that a browser offers.
    starts : tuple of bytes
        First bytes that the file may have.
    max_bytes : int
        Upper bound on its bytes.
    n_content : dict of bytes to int
        Of binary files, by their first bytes: bytes between header and end. Other files are JSON.
    """

    name: str
    label: str
    what: str
    hint: str
    endings: tuple[str, ...]
    starts: tuple[bytes, ...]
    max_bytes: int
    n_content: Mapping[bytes, int] = field(default_factory=dict)
    is_required: bool = True

    @property
    def accept(self) -> str:
        """Endings of file names, as browsers read them."""
        return ",".join(self.endings)

    @property
    def shapes(self) -> str:
        """Shapes of the files that the field takes, in JSON, for the script."""
        return json.dumps([self._shape(start) for start in self.starts])

    def _shape(self, start: bytes) -> dict[str, object]:
        shape: dict[str, object] = {"start": start.hex()}
        if start in self.n_content:
            n_end, names = binary_shape(start)
            shape |= {"content": self.n_content[start], "end": n_end, "header": names}
        return shape


MAX_SIGNATURE = 8 * 1024  # bytes of a signature or of a public key
_SENT = "Your browser sends this file and its name to this collector, and no other file."
DESIGN_FIELD = FileField(
    "design",
    "Design file",
    "a design",
    f"privsketch design makes this file. It is public, and cannot be changed afterwards. {_SENT}",
    (".json",),
    (json_start("design"),),
    MAX_JSON_BYTES,
)
KEY_FIELD = FileField(
    "key",
    "Public key (.pub), if they have one",
    "a public key",
    "Their uploads must then be signed with it. A private key is not taken.",
    (".pub",),
    (json_start("public-key"),),
    MAX_SIGNATURE,
    is_required=False,
)


def upload_fields(
    kinds: tuple[str, ...], n_content: Mapping[bytes, int], max_bytes: int, *, is_signed: bool
) -> list[FileField]:
    """Return the fields to upload files of these kinds; sketches may need a signature."""
    if not kinds:
        return []
    *first, last = map(phrase_of, kinds)
    what = " or ".join([", ".join(first), last] if first else [last])
    private = "A sketch is private before it leaves your machine." if SKETCH in kinds else ""
    hint = f"The study takes {what} of you now. {_SENT} {private}".strip()
    endings, starts = endings_of(kinds), starts_of(kinds)
    fields = [FileField("file", _label(kinds), what, hint, endings, starts, max_bytes, n_content)]
    if kinds == (SKETCH,):
        fields.append(
            FileField(
                "signature",
                "Signature (.sig)" if is_signed else "Signature (.sig), if you have one",
                "a signature",
                "privsketch key sign writes it beside the sketch.",
                (".sig",),
                (json_start("signature"),),
                MAX_SIGNATURE,
                is_required=is_signed,
            )
        )
    return fields


def _label(kinds: tuple[str, ...]) -> str:
    """Return the label of a field for files of these kinds."""
    if len(kinds) > 1:
        return "File"
    name = KIND_NAMES[kinds[0]]
    return name if name.endswith("file") else f"{name} file"
