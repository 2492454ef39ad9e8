"""A process that learns from sketches which a collector hands it, and answers once.

On standard input: a line of JSON, then the bytes of sketches. On standard output: one object.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from typing import Any

from privsketch._base.errors import ParameterError, PrivsketchError
from privsketch.sketching.sketch import Sketch
from privsketch_studies.collector.pages.sheets import main_of, without_attributes

COMPARE = "compare"
_PICTURE = '<div class="scroll picture" tabindex="0" role="region" aria-label="Picture of sites">'


def answer_to(question: dict[str, Any], sketches: list[Sketch]) -> dict[str, Any]:
    """What a page shows of one question."""
    task, number, title = question["task"], question["number"], question["title"]
    if task == COMPARE:
        from privsketch.pages.comparison.compare import compare
        from privsketch.pages.comparison.page import comparison_page

        found = compare(sketches)
        page, model = comparison_page(found), None
        facts: dict[str, Any] = {"n_alarms": sum(one.is_alarm for one in found.sources)}
    else:
        from privsketch.pages.report.html import report_page

        (total,) = sketches
        learned = _learned(total, task, number)
        page = report_page(learned, total, title=title)
        model = learned.to_bytes().decode("utf-8")
        facts = _facts(learned)
    # The page around it has a heading of its own, and a picture scrolls by itself on a phone.
    body, sheet = without_attributes(main_of(page).partition("</h1>")[2])
    if task == COMPARE:
        body = body.replace("<svg ", f"{_PICTURE}<svg ", 1).replace("</svg>", "</svg></div>", 1)
    return {"page": page, "body": body, "sheet": sheet, "model": model, "facts": facts}


def _learned(total: Sketch, task: str, number: int | str | None) -> Any:
    import privsketch as ps

    if task == "kmeans":
        return ps.learn_kmeans(total, number)
    if not isinstance(number, int | None):
        raise ParameterError("number", number, "expected a number; auto is for clusters")
    if task == "gaussian-mixture":
        return ps.learn_gaussian_mixture(total, number)
    return ps.learn_pca(total, number)


def _facts(model: Any) -> dict[str, Any]:
    """What a list of models tells of one."""
    ratio = getattr(model, "cost_ratio", None)
    number = getattr(model, "n_clusters", None) or model.n_components
    misfit = getattr(model, "misfit", None)
    return {
        "number": int(number),
        "cost_ratio": None if ratio is None else list(ratio.texts),
        "misfit": None if misfit is None else f"{misfit:.2f}",
        "concerns": list(model.concerns),
    }


def main() -> None:
    """Read, learn, answer; whatever libraries print goes elsewhere."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")  # what they say is among the concerns, which are shown
    question = json.loads(sys.stdin.buffer.readline())
    try:
        sketches = [
            Sketch.from_bytes(sys.stdin.buffer.read(length)) for length in question["lengths"]
        ]
        told = answer_to(question, sketches)
    except PrivsketchError as error:
        told = {"error": str(error)}
    except MemoryError:
        told = {"error": "this takes more memory than it may have here"}
    answers.write(json.dumps(told).encode("utf-8"))
    answers.close()


if __name__ == "__main__":
    main()
