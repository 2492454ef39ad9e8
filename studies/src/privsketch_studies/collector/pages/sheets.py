"""Reports within a page: their styles without attributes, which a strict policy does not run.

Every style attribute becomes a class of one sheet, whose digest the policy names. Only tags are
looked at: in what our own pages say, `<` and `>` are escaped wherever they are no part of a tag.
"""

from __future__ import annotations

import base64
import hashlib
import re

_TAG = re.compile(r"<[A-Za-z][^<>]*>")
_STYLE = re.compile(r'\sstyle="([^"]*)"')
_CLASS = re.compile(r'(\sclass=")([^"]*)"')
_ELEMENT = re.compile(r"<style[^<>]*>[^<]*</style>")
_SAFE = re.compile(r"[^{}<>@\\]*")


def without_attributes(body: str) -> tuple[str, str]:
    """The same HTML with classes for styles, and the sheet of these classes."""
    names: dict[str, str] = {}

    def cleaned(match: re.Match[str]) -> str:
        tag = match.group()
        found = _STYLE.search(tag)
        if found is None:
            return tag
        tag = tag[: found.start()] + tag[found.end() :]
        style = found.group(1).strip()
        if not _SAFE.fullmatch(style):
            return tag
        name = names.setdefault(style, f"i{len(names)}")
        if _CLASS.search(tag):
            return _CLASS.sub(rf'\g<1>\g<2> {name}"', tag, count=1)
        end = -2 if tag.endswith("/>") else -1
        return f'{tag[:end].rstrip()} class="{name}"{tag[end:]}'

    body = _TAG.sub(cleaned, _ELEMENT.sub("", body))
    # An attribute counts more than any class; three of the same name do, too.
    sheet = "\n".join(f".{name}.{name}.{name}{{{style}}}" for style, name in names.items())
    return body, sheet


def main_of(page: str) -> str:
    """What stands in the middle of a page of ours."""
    return page.partition("<main>")[2].rpartition("</main>")[0]


def policy_digest(sheet: str) -> str:
    """A sheet, as a policy names it."""
    digest = hashlib.sha256(sheet.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
