"""The form for a schema in a real browser: on a desk, on a phone, in the dark, and without scripts.

Skipped where Chromium or playwright is missing.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import privsketch as ps
from tests.commands import succeeded
from tests.visits import visits

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here"),
]
SHOTS = os.environ.get("PRIVSKETCH_SCREENSHOTS")  # a folder, for whoever wants to look
SHOWN = "e => e.checkVisibility()"
NAMELESS = """() => [...document.querySelectorAll('input:not([type=hidden]),select,textarea')]
    .filter(e => e.checkVisibility() && !(e.labels && e.labels.length)).map(e => e.outerHTML)"""


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_a_schema_is_edited_and_accepted(folder, width, scheme):
    playwright = pytest.importorskip("playwright.sync_api")
    visits(300).to_csv("visits.csv", index=False)
    succeeded("schema", "draft", "visits.csv", "--look", "-o", "schema.json")
    command = [sys.executable, "-m", "privsketch.cli.main", "schema", "edit", "schema.json"]
    process = subprocess.Popen(
        [*command, "--no-browser"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    address = process.stderr.readline().split()[1]
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            java_script_enabled=True,  # for the questions of this test; the page has none
        )
        page, asked, told = context.new_page(), [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: told.append(message.text))
        page.goto(address)
        page.reload()
        assert page.locator("script").count() == 0
        assert page.evaluate(NAMELESS) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        shot(page, f"schema-{width}-{scheme}")
        # A kind shows its own fields.
        low, labels = page.locator("[id='0.number.low']"), page.locator("[id='0.category.values']")
        assert low.evaluate(SHOWN)
        assert not labels.evaluate(SHOWN)
        page.select_option("[id='0.kind']", "category")
        assert labels.evaluate(SHOWN)
        assert not low.evaluate(SHOWN)
        page.select_option("[id='0.kind']", "number")
        assert not page.locator("[id='0.fill']").evaluate(SHOWN)
        page.select_option("[id='0.missing']", "fill")
        assert page.locator("[id='0.fill']").evaluate(SHOWN)
        page.select_option("[id='0.missing']", "")
        # An error beside its field, and what was typed is still there.
        low.fill("400")
        page.get_by_role("button", name="Save, and accept").click()
        assert "is not below" in page.locator("[id='0.number.low-error']").inner_text()
        assert low.input_value() == "400"
        shot(page, f"schema-error-{width}-{scheme}")
        low.fill("18")
        page.select_option("[id='1.kind']", "leave out")
        page.get_by_role("button", name="Save, and accept").click()
        assert "is saved" in page.locator("h1").inner_text()
        shot(page, f"schema-saved-{width}-{scheme}")
        browser.close()
    process.communicate(timeout=20)
    assert process.returncode == 0
    host = address.rpartition("/")[0]
    assert all(url.startswith((host, "data:")) for url in asked)
    assert [text for text in told if "422" not in text] == []  # no policy was broken
    schema = ps.Schema.load("schema.json")
    assert schema.columns[0].low == 18
    assert "income" not in schema.names
    assert "guessed" not in json.loads(Path("schema.json").read_text())


def shot(page, name):
    if SHOTS:
        page.screenshot(path=f"{SHOTS}/{name}.png", full_page=False)
