"""Pages in a real browser: a whole visit on a desk, on a phone and in the dark.

Nothing is loaded from elsewhere, no policy is broken, nothing scrolls sideways, and what a person
with a keyboard or a screen reader needs is there. Skipped where Chromium or playwright is missing.
"""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import privsketch as ps
from privsketch_studies.collector import Store, add_member, find_member, make_study, submit
from studies.tests.sealed import GAUSSIAN, People, cast, integers
from studies.tests.server import serving

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here"),
]
SHOTS = os.environ.get("PRIVSKETCH_SCREENSHOTS")  # a folder, for whoever wants to look
DOMAIN = ps.Box([0, 0], [100, 200], columns=["age", "systolic"])
DESIGN = ps.Design.plan(
    n_components=3,
    domain=DOMAIN,
    n_records=2000,
    budget=ps.Budget(1.0, 1e-6),
    random_state=0,
)
TITLE = "Hearts & <b>minds</b>, a study with a title that is longer than a phone is wide"
SIZES = ((1280, "light"), (1280, "dark"), (390, "light"), (390, "dark"))
# What is wrong with a page, as a list of sentences. Contrast is that of WCAG 2, AA.
CHECK = """() => {
  const found = [], shown = e => e.checkVisibility({visibilityProperty: true});
  const all = s => [...document.querySelectorAll(s)].filter(shown);
  const named = e => (e.labels && e.labels.length) || e.getAttribute('aria-label') ||
    e.getAttribute('aria-labelledby') || e.textContent.trim();
  for (const e of all('input:not([type=hidden]),select,textarea,button,a[href],summary'))
    if (!named(e)) found.push('no name: ' + e.outerHTML.slice(0, 120));
  for (const e of all('img')) if (!e.hasAttribute('alt')) found.push('no alt');
  for (const e of all('svg'))
    if (!e.getAttribute('aria-label') && !e.closest('[aria-hidden=true]'))
      found.push('svg without a name');
  let last = 0;
  for (const e of all('h1,h2,h3,h4,h5,h6')) {
    const level = +e.tagName[1];
    if (level > last + 1) found.push('heading ' + e.textContent + ' skips a level');
    last = level;
  }
  if (all('h1').length !== 1) found.push('not one h1');
  for (const s of ['header', 'main', 'html[lang]'])
    if (document.querySelectorAll(s).length < 1) found.push('no ' + s);
  const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
  for (const id of new Set(ids))
    if (ids.filter(x => x === id).length > 1) found.push('id twice: ' + id);
  for (const e of document.querySelectorAll('[aria-labelledby],[aria-describedby]'))
    for (const name of ['aria-labelledby', 'aria-describedby'])
      for (const id of (e.getAttribute(name) || '').split(' ').filter(Boolean))
        if (!document.getElementById(id)) found.push(name + ' of nothing: ' + id);
  for (const e of all('th')) if (!e.scope) found.push('th without scope: ' + e.textContent);
  for (const e of all('button,.button,.tabs a'))
    if (e.getBoundingClientRect().height < 24) found.push('small target: ' + e.textContent);
  const rgb = t => [...t.match(/[\\d.]+/g).map(Number), 1].slice(0, 4);
  const over = (a, b) => a.slice(0, 3).map((v, i) => v * a[3] + b[i] * (1 - a[3])).concat(1);
  const light = c => { const [r, g, b] = c.slice(0, 3).map(v => (v /= 255) <= .04045 ? v / 12.92 :
    ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
  const behind = e => { const stack = [];
    for (let at = e; at; at = at.parentElement)
      stack.push(rgb(getComputedStyle(at).backgroundColor));
    return stack.reverse().reduce((a, b) => over(b, a), [255, 255, 255, 1]); };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !shown(e)) continue;
    if (e.closest('svg,.hidden,.skip,option')) continue;
    const style = getComputedStyle(e), ground = behind(e), ink = over(rgb(style.color), ground);
    const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x);
    const large = parseFloat(style.fontSize) >= 24 ||
      (parseFloat(style.fontSize) >= 18.66 && +style.fontWeight >= 700);
    const ratio = (a + .05) / (b + .05);
    if (ratio < (large ? 3 : 4.5))
      found.push('contrast ' + ratio.toFixed(2) + ': ' + e.outerHTML.slice(0, 120));
  }
  return found;
}"""


def records(site):
    rng = np.random.default_rng(site)
    centers = np.array([[25, 110], [50, 150], [80, 130]])[rng.integers(3, size=2000)]
    return centers + rng.normal(size=(2000, 2)) * [5, 8]


@pytest.fixture(scope="module")
def chromium():
    sync = pytest.importorskip("playwright.sync_api")
    with sync.sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def site(place, tmp_path):
    """The address of a collector, its tokens, and a sketch that was not handed in."""
    store = Store(place)
    tokens = {"olga": add_member(store, "olga", makes_studies=True)}
    owner = find_member(store, "olga")
    make_study(store, "heart", DESIGN.to_bytes(), owner="olga", title=TITLE)
    for number, name in enumerate(("north", "south", "west <i>wing")):
        tokens[name] = add_member(store, name, study="heart", as_roles=["site"], by=owner)
        sketch = ps.sketch(records(number), DESIGN, source=name)
        if number:
            submit(store, find_member(store, name), "heart", sketch.to_bytes())
        else:
            sketch.save(tmp_path / "north.sketch")
    store.close()
    with serving(place) as address:
        yield address, tokens, tmp_path / "north.sketch"


class Watched:
    """A window of a browser that notes everything that goes wrong in it."""

    def __init__(self, page, address):
        self.page, self.address, self.faults = page, address, []
        page.on("console", lambda said: self._note(said.type, said.text))
        page.on("pageerror", lambda error: self._note("error", str(error)))
        page.on("requestfailed", self._note_failed)
        page.on("request", self._require_here)

    def _note(self, kind, text):
        if kind in ("error", "warning"):
            self.faults.append(text)

    def _note_failed(self, request):
        if request.failure != "net::ERR_ABORTED":  # what a download is to a page
            self._note("error", f"{request.failure}: {request.url}")

    def _require_here(self, request):
        if not request.url.startswith((self.address, "data:")):
            self.faults.append(f"request to {request.url}")

    def go(self, path):
        self.page.goto(self.address + path)

    def sign_in(self, token):
        self.go("/")
        self.page.get_by_label("Your token").fill(token)
        self.page.get_by_role("button", name="Sign in").click()

    def require_good(self, name):
        """Look at the page as it is: nothing wrong, nothing wider than the window."""
        self.page.wait_for_function(
            "document.readyState == 'complete' && document.querySelector('h1')"
        )
        wide = self.page.evaluate("() => [document.documentElement.scrollWidth, window.innerWidth]")
        assert wide[0] <= wide[1], f"{name}: scrolls sideways"
        assert self.page.evaluate(CHECK) == [], name
        assert self.faults == [], name
        if SHOTS:
            Path(SHOTS).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=f"{SHOTS}/{name}.png", full_page=True)


@contextmanager
def window(browser, address, width=1280, scheme="light"):
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
    )
    try:
        yield Watched(context.new_page(), address)
    finally:
        context.close()


def test_a_whole_visit(chromium, site):
    address, tokens, file = site
    with window(chromium, address) as seen:
        page = seen.page
        seen.go("/studies/heart")  # the way of somebody who got the address
        assert page.url.endswith("/sign-in?next=/studies/heart")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.get_by_label("Your token").fill(tokens["north"])
        page.keyboard.press("Enter")
        page.wait_for_url(lambda address: address.endswith("/studies/heart") and "?" not in address)
        assert page.get_by_role("heading", level=1).inner_text() == TITLE
        assert page.get_by_text("Make your sketch").is_visible()
        assert page.get_by_text("2 of 3 sites").is_visible()
        page.get_by_label("Sketch file").set_input_files(file)
        page.get_by_role("button", name="Upload").click()
        assert page.get_by_role("status").inner_text().startswith("Your file is uploaded")
        assert page.get_by_text("3 of 3 sites").is_visible()
        page.get_by_role("link", name="Learn from the total").click()
        page.get_by_label("Number of components").fill("3")
        page.get_by_role("button", name="Learn", exact=True).click()
        page.get_by_role("heading", name="What it cost").wait_for(timeout=120_000)
        assert page.locator(".report svg").count() > 0
        with page.expect_download() as loading:
            page.get_by_role("link", name="Download the model").click()
        model = ps.load(loading.value.path())
        assert model.n_clusters == 3
        assert sorted(round(age / 10) for age in model.centers[:, 0]) in ([2, 5, 8], [3, 5, 8])
        seen.go("/studies/heart/sources")  # not for a site
        assert page.get_by_role("alert").is_visible()
        assert [fault for fault in seen.faults if "403" not in fault] == []
        page.get_by_role("link", name="privsketch collector").click()
        page.get_by_role("button", name="Sign out").click()
        seen.go("/studies/heart")
        assert "/sign-in" in page.url


def test_every_page_is_good_on_a_desk_on_a_phone_and_in_the_dark(chromium, site):
    address, tokens, _ = site
    with window(chromium, address) as seen:
        seen.go("/")
        seen.require_good("sign-in")
        seen.sign_in(tokens["olga"])
        page = seen.page
        seen.go("/studies/heart/models")
        page.get_by_label("Up to").fill("4")
        page.get_by_role("button", name="Learn", exact=True).click()
        seen.require_good("models-waiting")
        seen.go("/studies/heart/models/kmeans/4")
        seen.require_good("model-waiting")
        seen.go("/studies/heart/models")
        page.get_by_label("Model", exact=True).select_option("gaussian-mixture")
        page.get_by_role("button", name="Learn", exact=True).click()
        page.get_by_role("heading", name="What it cost").wait_for(timeout=120_000)
        seen.go("/studies/heart/sources")  # which the results have begun to compare
        page.get_by_role("heading", name="Clusters of all sources").wait_for(timeout=120_000)
    ends = ("", "/models", "/models/kmeans/3", "/models/gaussian-mixture/3", "/sources")
    ends += ("/files", "/people", "/history")
    for width, scheme in SIZES:
        with window(chromium, address, width, scheme) as seen:
            seen.sign_in(tokens["olga"])
            seen.require_good(f"studies-{width}-{scheme}")
            for end in ends:
                seen.go(f"/studies/heart{end}")
                name = end.strip("/").replace("/", "-") or "overview"
                seen.require_good(f"{name}-{width}-{scheme}")
            seen.go("/new")
            seen.require_good(f"new-{width}-{scheme}")
            seen.go("/studies/heart/people")
            seen.page.get_by_label("Name").fill(f"east {width} {scheme}")
            seen.page.get_by_role("button", name="Add the member").click()
            seen.require_good(f"token-{width}-{scheme}")


def test_the_checks_find_what_is_planted(chromium, site):
    """A page with one fault of each kind, so that silence above means something."""
    address, _, _ = site
    with window(chromium, address) as seen:
        seen.go("/sign-in")
        seen.page.evaluate(
            """() => { document.querySelector('main').insertAdjacentHTML('beforeend',
            '<h4>Deep</h4><input><img src="data:,"><button></button><i id="token"></i>' +
            '<table><tr><th>x</th></tr></table><svg></svg><p id="pale">pale</p>');
            document.getElementById('pale').style.color = '#aaa'; }"""
        )
        told = " ".join(seen.page.evaluate(CHECK))
        for word in ("skips a level", "no name: <input", "no alt", "no name: <button", "id twice",
                     "th without", "svg without", "contrast 2"):  # fmt: skip
            assert word in told, word
        seen.page.evaluate("document.body.insertAdjacentHTML('beforeend', '<b style=\"a:b\">')")
        seen.page.evaluate("new Image().src = 'http://evil.example/x.png'")
        seen.page.wait_for_timeout(300)
        assert any("style" in fault for fault in seen.faults)
        assert any("img-src" in fault for fault in seen.faults)


def test_a_page_of_somebody_else_cannot_send_forms(chromium, site):
    """A form of another origin, in a browser that has a session."""
    address, tokens, _ = site
    with window(chromium, address) as seen:
        seen.sign_in(tokens["olga"])
        other = address.replace("127.0.0.1", "localhost")  # another site to a browser
        seen.page.route(f"{other}/trap", lambda route: route.fulfill(
            content_type="text/html",
            body=f'<form method="post" action="{address}/studies/heart/close">'
            '<input name="sure" value="yes"><button>Go</button></form>',
        ))  # fmt: skip
        seen.page.goto(f"{other}/trap")
        seen.page.get_by_role("button", name="Go").click()
        seen.page.wait_for_load_state()
        seen.go("/studies/heart")
        assert seen.page.get_by_text("Open", exact=True).is_visible()
        assert seen.page.get_by_role("heading", name="can be closed once").is_visible()


CSV = b"name,age\n" + b"PRIVATE,3\n" * 50_000  # longer than a browser sends at once


@contextmanager
def visit(chromium, address, token, *, has_script=True):
    """The page of a study after signing in, and the posts that its browser sends from then on."""
    context = chromium.new_context(java_script_enabled=has_script)
    page, sent = context.new_page(), []
    page.on("request", lambda request: sent.append(request) if request.method == "POST" else None)
    page.goto(f"{address}/studies/heart")
    page.get_by_label("Your token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", level=1).wait_for()
    sent.clear()
    try:
        yield page, sent
    finally:
        context.close()


def wrong_files(good):
    """Files that are not wholly a good one, whatever they begin or end with, by a name."""
    n_header = int.from_bytes(good[12:16], "little")
    longer = good[:12] + (n_header + 1).to_bytes(4, "little") + good[16:]
    return {
        "patients.csv": CSV,
        "appended.bin": good + CSV,
        "one-byte.bin": good + b"\n",
        "inserted.bin": good[: 16 + n_header] + CSV[:80] + good[16 + n_header :],
        "magic.bin": good[:16] + CSV,
        "short.bin": good[:-8],
        "length.bin": longer,
        "empty.bin": b"",
    }


def require_refused(page, sent, label, files, tmp_path):
    """No byte of these files leaves the browser."""
    field = page.get_by_label(label)
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        field.set_input_files(tmp_path / name)
        said = page.get_by_role("alert").filter(has_text="left this machine")
        said.filter(has_text=name).wait_for()
        assert "No byte of it left this machine." in said.inner_text()
        assert field.input_value() == ""
        page.get_by_role("button", name="Upload").click()  # a file is required
    assert sent == []


def test_a_file_that_is_not_wholly_a_sketch_stays_in_the_browser(chromium, site, tmp_path):
    address, tokens, file = site
    with visit(chromium, address, tokens["north"]) as (page, sent):
        assert page.get_by_label("Sketch file").get_attribute("accept") == ".sketch"
        assert page.get_by_text("sends this file and its name to this collector").is_visible()
        require_refused(page, sent, "Sketch file", wrong_files(file.read_bytes()), tmp_path)
        key = ps.Key.generate("north")
        signature = key.signature(file.read_bytes(), "sketch").to_bytes()
        page.get_by_label("Sketch file").set_input_files(file)
        field = page.get_by_label("Signature")
        faults = {"csv": CSV, "more": signature + CSV[:99], "two": signature + b"{}\n"}
        for name, data in (faults | {"cut": signature[:-2]}).items():
            (tmp_path / name).write_bytes(data)
            field.set_input_files(tmp_path / name)
            page.get_by_text(f"{name} is not a signature").wait_for()
        assert sent == []
        (tmp_path / "north.sig").write_bytes(signature)
        field.set_input_files(tmp_path / "north.sig")
        page.get_by_role("button", name="Upload").click()
        page.get_by_role("status").wait_for()
        assert page.get_by_text("3 of 3 sites").is_visible()


def test_a_file_that_is_not_wholly_a_design_or_a_key_stays_in_the_browser(chromium, site, tmp_path):
    address, tokens, _ = site
    with visit(chromium, address, tokens["olga"]) as (page, sent):
        for path, label, good, button in (
            ("/new", "Design file", DESIGN.to_bytes(), "Create the study"),
            ("/studies/heart/people", "Public key", ps.Key.generate("x").public.to_bytes(), "Add"),
        ):
            page.goto(address + path)
            assert page.get_by_text("sends no file without scripts").count() == 0
            page.get_by_label("Name").first.fill("newcomer")
            for name, data in (("table.csv", CSV), ("more.json", good + CSV[:90])):
                (tmp_path / name).write_bytes(data)
                page.get_by_label(label).set_input_files(tmp_path / name)
                page.get_by_text(f"{name} is not a").wait_for()
            assert sent == []
            (tmp_path / "good.json").write_bytes(good)
            page.get_by_label(label).set_input_files(tmp_path / "good.json")
            page.get_by_role("button", name=button).click()
            page.get_by_text("newcomer").first.wait_for()
            assert len(sent) == 1
            sent.clear()


def test_a_browser_without_scripts_sends_no_file(chromium, site):
    address, tokens, _ = site
    with visit(chromium, address, tokens["north"], has_script=False) as (page, sent):
        for label in ("Sketch file", "Signature"):
            assert page.get_by_label(label).is_disabled()
        button = page.get_by_role("button", name="Upload")
        assert button.is_disabled()
        button.click(force=True)
        page.get_by_label("Signature").press("Enter", timeout=1000)
        assert page.get_by_text("sends no file without scripts").is_visible()
        assert page.get_by_text("privsketch collector push", exact=True).is_visible()
        assert sent == []


@pytest.fixture
def sealed_site(place, tmp_path, monkeypatch):
    """A sealed study that takes ballots; its tokens, and the people with their keys."""
    monkeypatch.setenv("PRIVSKETCH_HOME", str(tmp_path / "home"))
    people, store = People(), Store(place)
    tokens = {"olga": add_member(store, "olga", makes_studies=True)}
    make_study(store, "heart", GAUSSIAN.to_bytes(), owner="olga", sealed=True)
    study = people.made()
    for key, role in [(key, "site") for key in people.holders] + [
        (key, "teller") for key in people.tellers
    ]:
        tokens[key.name] = add_member(store, key.name, study="heart", as_roles=[role])
    for card in people.cards:
        submit(store, find_member(store, card.name), "heart", card.to_bytes())
    submit(store, find_member(store, "olga"), "heart", study.to_bytes())
    for key in people.tellers:
        submit(store, find_member(store, key.name), "heart", study.accept(key).to_bytes())
    with serving(place) as address:
        yield address, tokens, people, study, store
    store.close()


def test_files_of_sealed_studies_are_wholly_read_before_they_leave(chromium, sealed_site, tmp_path):
    address, tokens, people, study, store = sealed_site
    rng = np.random.default_rng(0)
    ballots = [cast(study, integers(rng, study) // 2**30, key) for key in people.holders]
    for key, ballot in zip(people.holders[1:], ballots[1:], strict=True):
        submit(store, find_member(store, key.name), "heart", ballot.to_bytes())

    def upload(who, label, thing):
        with visit(chromium, address, tokens[who]) as (page, sent):
            good = thing.to_bytes()
            files = {"patients.csv": CSV, "appended.bin": good + CSV, "cut.bin": good[:-1]}
            if not good.startswith(b"{"):
                files = wrong_files(good)
            require_refused(page, sent, label, files, tmp_path)
            (tmp_path / "good").write_bytes(good)
            page.get_by_label(label).set_input_files(tmp_path / "good")
            page.get_by_role("button", name="Upload").click()
            page.get_by_text("Your file is uploaded").wait_for()

    upload(people.holders[0].name, "Ballot file", ballots[0])
    for key, checked in zip(people.tellers, people.checked(study, ballots), strict=True):
        upload(key.name, "File", checked)
    closed = people.closed(study, ballots)
    upload("olga", "Closed list file", closed)
    for key, tally in zip(people.tellers, people.tallies(study, ballots, closed), strict=True):
        upload(key.name, "File", tally)


@pytest.fixture
def alarming(place):
    """A study whose three sites have reported; one of them measures in kilopascals."""
    store = Store(place)
    tokens = {"olga": add_member(store, "olga", makes_studies=True)}
    make_study(store, "heart", DESIGN.to_bytes(), owner="olga", title="Hearts")
    for number, name in enumerate(("north", "south", "east")):
        add_member(store, name, study="heart", as_roles=["site"])
        rows = records(number) * [1, 0.1333 if name == "east" else 1]
        sketch = ps.sketch(rows, DESIGN, source=name)
        submit(store, find_member(store, name), "heart", sketch.to_bytes())
    store.close()
    with serving(place) as address:
        yield address, tokens["olga"]


def test_an_alarm_is_on_the_overview_and_nothing_proposes_to_close(chromium, alarming):
    address, token = alarming
    for width, scheme in SIZES:
        with window(chromium, address, width, scheme) as seen:
            page = seen.page
            seen.sign_in(token)
            seen.go("/studies/heart")
            while page.get_by_text("The sites are being compared").count():
                page.wait_for_timeout(200)
                page.reload()
            said = page.get_by_role("alert").inner_text()
            assert "east: systolic: 0.1333 times" in said
            assert "kilopascals" in said
            assert page.get_by_text("Settle the alarm").is_visible()
            assert page.get_by_role("button", name="Close the study").count() == 0
            assert page.get_by_text("close the study: all sites").count() == 0
            seen.require_good(f"alarm-{width}-{scheme}")
            seen.go("/")
            assert page.get_by_text("1 alarm").is_visible()
            seen.require_good(f"alarm-studies-{width}-{scheme}")
            seen.go("/studies/heart/sources")
            assert page.locator("tr.alarm").inner_text().startswith("east")
            assert page.evaluate(BROKEN) == []
            seen.require_good(f"alarm-sources-{width}-{scheme}")


# Words that stand on two lines, although a line is long enough for them.
BROKEN = """() => {
  const found = [], range = document.createRange();
  const walker = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, text = node.textContent, box = node.parentElement;
    if (!box.checkVisibility() || box.closest('svg,.hidden,code,pre')) continue;
    if ((box.closest('thead') || box).offsetWidth <= 1) continue;  // for screen readers
    for (const word of text.matchAll(/[^\\s\\-/]+/g)) {
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map(r => Math.round(r.top))).size > 1)
        found.push(word[0]);
    }
  }
  return found;
}"""


def test_tiles_align_words_are_whole_and_printed_pages_have_no_buttons(chromium, site):
    address, tokens, _ = site
    for width in (1280, 390):
        with window(chromium, address, width) as seen:
            page = seen.page
            seen.sign_in(tokens["olga"])
            for end in ("", "/models", "/files", "/people", "/history"):
                seen.go(f"/studies/heart{end}")
                assert page.evaluate(BROKEN) == [], (width, end)
            seen.go("/studies/heart")
            tiles = page.locator(".columns > .panel")
            boxes = [tiles.nth(number).bounding_box() for number in range(2)]
            same = "height" if width == 1280 else "width"
            assert boxes[0][same] == pytest.approx(boxes[1][same], abs=1)
            folded = page.locator("details pre")
            assert not folded.is_visible()
            page.emulate_media(media="print")
            assert folded.bounding_box()["height"] > 100
            for end in ("", "/models", "/files", "/people", "/history"):
                seen.go(f"/studies/heart{end}")
                for what in ("button", ".button", "form", "nav", "input"):
                    visible = page.locator(what).filter(visible=True).count()
                    assert visible == 0, (width, end, what)
                assert page.get_by_role("heading", level=1).is_visible()
