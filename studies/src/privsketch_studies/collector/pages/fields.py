"""Fields for files: which files each takes, what is sent, and the first bytes that are allowed.

A script looks at the first bytes before a file is sent (upload.js). Without it the collector stops
reading at the first bytes that no such file has.
"""

from __future__ import annotations

from dataclasses import dataclass

from privsketch_studies.collector.kinds import SKETCH, endings_of, json_start, starts_of
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
    """

    name: str
    label: str
    what: str
    hint: str
    endings: tuple[str, ...]
    starts: tuple[bytes, ...]
    is_required: bool = True

    @property
    def accept(self) -> str:
        """Endings of file names, as browsers read them."""
        return ",".join(self.endings)

    @property
    def digits(self) -> str:
        """First bytes in hex digits, for the script."""
        return " ".join(start.hex() for start in self.starts)


_SENT = "Your browser sends this file and its name to this collector, and no other file."
DESIGN_FIELD = FileField(
    "design",
    "Design file",
    "a design",
    f"privsketch design makes this file. It is public, and cannot be changed afterwards. {_SENT}",
    (".json",),
    (json_start("design"),),
)
KEY_FIELD = FileField(
    "key",
    "Public key (.pub), if they have one",
    "a public key",
    "Their uploads must then be signed with it. A private key is not taken.",
    (".pub",),
    (json_start("public-key"),),
    is_required=False,
)


def upload_fields(kinds: tuple[str, ...], *, is_signed: bool) -> list[FileField]:
    """Return the fields to upload files of these kinds; sketches may need a signature."""
    if not kinds:
        return []
    names = [KIND_NAMES[kind].lower() for kind in kinds]
    what = " or ".join(f"an {name}" if name[0] == "a" else f"a {name}" for name in names)
    private = "A sketch is private before it leaves your machine." if SKETCH in kinds else ""
    label = f"{names[0][:1].upper()}{names[0][1:]} file" if len(names) == 1 else "File"
    hint = f"The study takes {what} of you now. {_SENT} {private}".strip()
    fields = [FileField("file", label, what, hint, endings_of(kinds), starts_of(kinds))]
    if kinds == (SKETCH,):
        fields.append(
            FileField(
                "signature",
                "Signature (.sig)" if is_signed else "Signature (.sig), if you have one",
                "a signature",
                "privsketch key sign writes it beside the sketch.",
                (".sig",),
                (json_start("signature"),),
                is_required=is_signed,
            )
        )
    return fields
