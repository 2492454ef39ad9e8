"""The process that learns from the sketches of one job, and prints one answer.

Standard input has a line of JSON, then the bytes of sketches. Standard output gets one object.

The report in an answer is shown within a page whose policy allows no style attributes. Each of
them becomes a class of one style sheet, whose digest the policy names.
"""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from typing import Any

from privsketch._base.errors import ParameterError, PrivsketchError
from privsketch.sketching.sketch import Sketch

COMPARE = "compare"
_PICTURE = '<div class="scroll picture" tabindex="0" role="region" aria-label="Picture of sites">'
# In reports `<` and `>` are escaped wherever they are no part of a tag.
_TAG = re.compile(r"<[A-Za-z][^<>]*>")
_STYLE_ATTRIBUTE = re.compile(r'\sstyle="([^"]*)"')
_CLASS_ATTRIBUTE = re.compile(r'(\sclass=")([^"]*)"')
_STYLE_ELEMENT = re.compile(r"<style[^<>]*>[^<]*</style>")
_SAFE_STYLE = re.compile(r"[^{}<>@\\]*")


def answer_to(request: dict[str, Any], sketches: list[Sketch]) -> dict[str, Any]:
    """Learn what a request asks for, and return what its page shows."""
    task, number, title = request["task"], request["number"], request["title"]
    if task == COMPARE:
        from privsketch.pages.comparison.compare import compare
        from privsketch.pages.comparison.page import comparison_page

        comparison = compare(sketches)
        page, model = comparison_page(comparison), None
        alarms = comparison.alarm_lines()
        # Of two sources, either may be the wrong one.
        sources = comparison.sources if alarms and len(sketches) == 2 else comparison.alarms
        facts: dict[str, Any] = {"alarms": alarms, "sources": [one.source for one in sources]}
    else:
        from privsketch.pages.report.html import report_page

        (total,) = sketches
        result = _learn(total, task, number)
        page = report_page(result, total, title=title)
        model = result.to_bytes().decode("utf-8")
        facts = _facts(result)
    # The page around it has a heading of its own, and a picture scrolls by itself on a phone.
    main = page.partition("<main>")[2].rpartition("</main>")[0]
    body, sheet = without_attributes(main.partition("</h1>")[2])
    if task == COMPARE:
        body = body.replace("<svg ", f"{_PICTURE}<svg ", 1).replace("</svg>", "</svg></div>", 1)
    return {"page": page, "body": body, "sheet": sheet, "model": model, "facts": facts}


def without_attributes(body: str) -> tuple[str, str]:
    """Return the HTML with classes in place of style attributes, and the sheet of these classes."""
    names: dict[str, str] = {}

    def with_class(match: re.Match[str]) -> str:
        tag = match.group()
        attribute = _STYLE_ATTRIBUTE.search(tag)
        if attribute is None:
            return tag
        tag = tag[: attribute.start()] + tag[attribute.end() :]
        style = attribute.group(1).strip()
        if not _SAFE_STYLE.fullmatch(style):
            return tag
        name = names.setdefault(style, f"i{len(names)}")
        if _CLASS_ATTRIBUTE.search(tag):
            return _CLASS_ATTRIBUTE.sub(rf'\g<1>\g<2> {name}"', tag, count=1)
        end = -2 if tag.endswith("/>") else -1
        return f'{tag[:end].rstrip()} class="{name}"{tag[end:]}'

    body = _TAG.sub(with_class, _STYLE_ELEMENT.sub("", body))
    # An attribute takes precedence over a class, and so does a class that is named three times.
    sheet = "\n".join(f".{name}.{name}.{name}{{{style}}}" for style, name in names.items())
    return body, sheet


def _learn(total: Sketch, task: str, number: int | str | None) -> Any:
    import privsketch as ps

    if task == "kmeans":
        return ps.learn_kmeans(total, number)
    if not isinstance(number, int | None):
        raise ParameterError("number", number, "expected a number; auto is for clusters")
    if task == "gaussian-mixture":
        return ps.learn_gaussian_mixture(total, number)
    if task in ("regression", "summary"):
        return _learn_of_column(total, task, number)
    return ps.learn_pca(total, number)


def _learn_of_column(total: Sketch, task: str, place: int | None) -> Any:
    """Learn what goes with a column, or means by its labels; flags and categories have classes."""
    import privsketch as ps
    from privsketch.facts.labels import Labelled

    schema = total.design.schema
    names = (total.design.columns or ()) if schema is None else schema.names
    name = None if place is None else names[place - 1]
    if task == "summary":
        return ps.learn_summary(total, by=name)
    target = total.design.target if name is None else name
    columns = () if schema is None else schema.columns
    if any(c.name == target and isinstance(c, Labelled) for c in columns):
        return ps.learn_classifier(total, target)
    return ps.learn_regression(total, target)


def _facts(model: Any) -> dict[str, Any]:
    """Return what a list of models shows of one."""
    from privsketch.models.linear import LinearModel
    from privsketch.models.summary import SummaryModel

    ratio = getattr(model, "cost_ratio", None)
    misfit = getattr(model, "misfit", None)
    if isinstance(model, SummaryModel):
        number: int | str = "all" if model.by is None else f"by {model.by}"
    elif isinstance(model, LinearModel):
        number = f"of {model.target}"
    else:
        number = int(getattr(model, "n_clusters", None) or model.n_components)
    return {
        "number": number,
        "cost_ratio": None if ratio is None else list(ratio.texts),
        "misfit": None if misfit is None else f"{misfit:.2f}",
        "concerns": list(model.concerns),
    }


def main() -> None:
    """Read a request, learn, and print the answer; what libraries print goes to standard error."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")  # the model's concerns, which are shown, repeat them
    request = json.loads(sys.stdin.buffer.readline())
    try:
        sketches = [
            Sketch.from_bytes(sys.stdin.buffer.read(length)) for length in request["lengths"]
        ]
        answer = answer_to(request, sketches)
    except PrivsketchError as error:
        answer = {"error": str(error)}
    except MemoryError:
        answer = {"error": "this takes more memory than it may have here"}
    output.write(json.dumps(answer).encode("utf-8"))
    output.close()


if __name__ == "__main__":
    main()
