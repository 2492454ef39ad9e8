"""Report pages in a real browser: on paper, on a phone, and with long names."""

import os
import shutil

import numpy as np
import pytest

import privsketch as ps

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]
SCHEMA = ps.Schema(
    [
        *(ps.Number(name, -1, 1, unit="u") for name in ("systolic", "diastolic", "hemoglobin")),
        ps.Category("ward", ["north", "intensive-care unit"]),
    ]
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Pages of a model with a sketch and of one without."""
    pd = pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(0)
    centers = rng.uniform(-0.6, 0.6, (3, 3))
    frame = pd.DataFrame(
        centers[rng.integers(3, size=3000)] + 0.1 * rng.normal(size=(3000, 3)),
        columns=["systolic", "diastolic", "hemoglobin"],
    )
    frame["ward"] = np.array(["north", "intensive-care unit"])[rng.integers(2, size=3000)]
    folder = tmp_path_factory.mktemp("pages")
    for method in ("sketch", "pipeline"):
        model = ps.PrivateKMeans(3, epsilon=1.0, delta=1e-6, domain=SCHEMA, method=method)
        ps.report(model.fit(frame), folder / f"{method}.html")
    return folder


@pytest.fixture(scope="module")
def chromium():
    sync = pytest.importorskip("playwright.sync_api")
    with sync.sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@pytest.fixture(params=["sketch", "pipeline"])
def page(request, chromium, pages):
    page = chromium.new_page(viewport={"width": 1100, "height": 900})
    page.goto((pages / f"{request.param}.html").as_uri())
    yield page
    page.close()


def test_folded_parts_are_open_on_paper(page):
    is_open = """Array.from(document.querySelectorAll('details'), each => {
        const [first, last] = [each.firstElementChild, each.lastElementChild];
        const heights = [each, first, last].map(part => part.getBoundingClientRect().height);
        return heights[0] >= heights[1] + heights[2];
    })"""
    assert len(page.evaluate(is_open)) > 1
    assert not any(page.evaluate(is_open))
    page.emulate_media(media="print")
    assert all(page.evaluate(is_open))


def test_tiles_stand_in_full_rows(page):
    for width, n_columns in ((1100, 5), (390, 2)):
        page.set_viewport_size({"width": width, "height": 900})
        boxes = [tile.bounding_box() for tile in page.locator(".card").all()]
        lefts = {round(box["x"]) for box in boxes}
        assert len(lefts) in (n_columns, len(boxes) if width > 1000 else 2)
        row = [box for box in boxes if box["y"] == boxes[-1]["y"]]
        right = max(box["x"] + box["width"] for box in boxes)
        assert row[-1]["x"] + row[-1]["width"] == pytest.approx(right, abs=1)


def test_a_phone_shows_the_colours_of_the_clusters(page):
    page.set_viewport_size({"width": 390, "height": 900})
    before = "getComputedStyle(document.querySelectorAll('.parts td')[{}], '::before')"
    images = [page.evaluate(f"{before.format(j)}.backgroundImage") for j in (1, 2, 3)]
    assert len(set(images)) == 3
    assert all("radial-gradient" in image for image in images)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_no_word_is_broken(page):
    """The widest word of every cell fits its line, so that lines end between words."""
    broken = """() => {
        const found = [];
        const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
        for (let node = walker.nextNode(); node; node = walker.nextNode()) {
            if (!node.parentElement.closest('th,td,b,h1,h2,p:not(:has(code))')) continue;
            for (const match of node.data.matchAll(/[A-Za-z]{2,30}/g)) {
                const range = document.createRange();
                range.setStart(node, match.index);
                range.setEnd(node, match.index + match[0].length);
                const boxes = Array.from(range.getClientRects());
                const tops = new Set(boxes.map(box => Math.round(box.top)));
                if (tops.size > 1) found.push(match[0]);
            }
        }
        return found;
    }"""
    for width in (1100, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(broken) == []
