"""Pages of the collector: who sees what, nothing unescaped, no script, no forged form."""

import base64
import hashlib
import json
import re
import sys
import time

import numpy as np
import pyarrow as pa
import pytest
from sqlalchemy import update

import privsketch as ps
from privsketch_studies import CollectorError
from privsketch_studies.collector import (
    JobQueue,
    begin_session,
    find_member,
    local_address,
    make_study,
    member_of_session,
    renew_token,
    revoke_token,
    sessions,
)
from privsketch_studies.collector.store import events
from studies.tests.server import DESIGN, sketch_of

SCRIPT = re.compile("(?s)<script>(.*?)</script>")  # looks at files before they are sent
EVIL = "<script>alert(1)</script>\"'&"
HERE = {"Origin": "http://testserver", "Accept": "text/html"}
PAGES = ("", "/models", "/sources", "/files", "/people", "/history")


class Browser:
    """Somebody at the pages, with a cookie and the token of forms."""

    def __init__(self, world, who=None):
        from starlette.testclient import TestClient

        self.client = TestClient(world.client.app, follow_redirects=False)
        if who is not None:
            answer = self.post("/sign-in", token=world.tokens[who])
            assert answer.status_code == 303, answer.text

    def get(self, path, **headers):
        return self.client.get(path, headers={"Accept": "text/html", **headers})

    def text(self, path):
        answer = self.get(path)
        assert answer.status_code == 200, answer.text
        return answer.text

    @property
    def form(self):
        return re.search(r'name="form" value="([0-9a-f]{64})"', self.text("/")).group(1)

    def post(self, path, *, files=None, headers=HERE, form=None, **fields):
        if path != "/sign-in":
            fields["form"] = self.form if form is None else form
        return self.client.post(path, data=fields, files=files, headers=headers)

    def wait(self, path):
        """A page once what it waits for is there."""
        for _ in range(3000):
            text = self.text(path)
            if 'http-equiv="refresh"' not in text:
                return text
            time.sleep(0.1)
        raise AssertionError(path)


@pytest.fixture
def olga(world):
    return Browser(world, "olga")


@pytest.fixture
def north(world):
    return Browser(world, "north")


# ---------------------------------------------------------------- sessions


def test_a_session_begins_with_a_token_and_ends_with_it(world, north):
    assert "Signed in as <b>north</b>" in north.text("/")
    (cookie,) = north.client.cookies.jar
    assert cookie.name == "privsketch"
    assert cookie.value not in str(world.tokens)
    with world.store.reading() as connection:  # the store cannot be used to sign in
        assert cookie.value not in str(connection.execute(sessions.select()).all())
    world.tokens["north"] = renew_token(world.store, "north")
    assert north.get("/").status_code == 303
    again = Browser(world, "north")
    assert again.get("/").status_code == 200
    revoke_token(world.store, "north")
    assert again.get("/studies/heart").headers["location"] == "/sign-in?next=/studies/heart"


def test_signing_out_ends_the_session_on_the_server(north):
    form, cookie = north.form, dict(north.client.cookies)
    assert north.post("/sign-out", form=form).headers["location"] == "/sign-in"
    north.client.cookies.update(cookie)  # a cookie that somebody kept
    assert north.get("/").headers["location"] == "/sign-in"


def test_sessions_end_by_themselves_and_are_not_many(world):
    first = begin_session(world.store, world.tokens["north"])
    assert member_of_session(world.store, first).name == "north"
    for _ in range(20):
        last = begin_session(world.store, world.tokens["north"])
    with pytest.raises(CollectorError, match="not signed in"):
        member_of_session(world.store, first)
    with world.store.writing() as connection:
        connection.execute(update(sessions).values(ends_at=0))
    with pytest.raises(CollectorError, match="not signed in"):
        member_of_session(world.store, last)


def test_cookies_are_for_the_browser_alone(world):
    answer = Browser(world).post("/sign-in", token=world.tokens["north"])
    told = answer.headers["set-cookie"].lower()
    assert "httponly" in told
    assert "samesite=strict" in told
    assert "path=/" in told
    secure = Browser(world)
    secure.client.base_url = "https://testserver"
    answer = secure.post(
        "/sign-in",
        token=world.tokens["north"],
        headers={**HERE, "Origin": "https://testserver"},
    )
    assert answer.headers["set-cookie"].startswith("__Host-privsketch=")
    assert "secure" in answer.headers["set-cookie"].lower()


@pytest.mark.parametrize("token", ["", "psk_wrong", "psk_" + "A" * 43, EVIL])
def test_no_session_without_a_valid_token(world, token):
    answer = Browser(world).post("/sign-in", token=token)
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert EVIL not in answer.text


@pytest.mark.parametrize("to", ["//evil.example", "https://evil.example", "/\\evil", "", "/a?b=c"])
def test_nobody_is_sent_elsewhere_after_signing_in(world, to):
    assert local_address(to) == "/"
    answer = Browser(world).post("/sign-in", token=world.tokens["north"], next=to)
    assert answer.headers["location"] == "/"


# ---------------------------------------------------------------- forms


FORMS = (
    ("/studies/heart/close", {"sure": "yes"}),
    ("/studies/heart/people", {"name": "eve", "role": "owner"}),
    ("/studies/heart/people/revoke", {"name": "north"}),
    ("/studies/heart/models", {"task": "kmeans", "number": "2"}),
    ("/sign-out", {}),
)


FORGED = (
    {"headers": {"Accept": "text/html"}},
    {"headers": {**HERE, "Origin": "http://evil.example"}},
    {"headers": {**HERE, "Origin": "null"}},
    {"headers": {**HERE, "Sec-Fetch-Site": "cross-site"}},
    {"headers": {**HERE, "Sec-Fetch-Site": "same-site"}},
    {"form": ""},
    {"form": "0" * 64},
)


def test_forms_of_other_pages_do_nothing(world, olga):
    before = world.ask("olga", "GET", "/studies/heart/events").text
    for path, fields in FORMS:
        for fault in FORGED:
            assert olga.post(path, **fault, **fields).status_code == 403, (path, fault)
    assert world.ask("olga", "GET", "/studies/heart/events").text == before
    assert olga.get("/").status_code == 200


def test_a_form_of_another_session_does_nothing(olga, north):
    assert olga.post("/studies/heart/close", form=north.form, sure="yes").status_code == 403


def test_the_api_takes_no_cookie(north):
    assert north.get("/api/v1/studies").status_code == 401


def test_forms_have_limits(north):
    large = {"file": ("a.sketch", b"x" * 200_000)}
    assert north.post("/studies/heart/uploads", files=large).status_code == 413
    many = {f"a{n}": "b" for n in range(50)}
    assert north.post("/studies/heart/models", **many).status_code == 422
    plain = {**HERE, "Content-Type": "text/plain"}
    assert north.client.post("/sign-in", content=b"token=x", headers=plain).status_code == 415


# ---------------------------------------------------------------- what is shown


def test_every_page_forbids_scripts_and_other_hosts(world, olga):
    world.push("north", sketch_of("north").to_bytes())
    found = [olga.get(f"/studies/heart{end}") for end in PAGES]
    found += [olga.get(path) for path in ("/", "/new", "/sign-in", "/nothing", "/studies/none")]
    for answer in found:
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'self'")
        assert "unsafe" not in policy
        scripts = SCRIPT.findall(answer.text)
        assert len(scripts) == ('type="file"' in answer.text)
        digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()) for text in scripts]
        allowed = [f"script-src 'sha256-{digest.decode()}'" for digest in digests]
        assert re.findall("script-src[^;]*", policy) == allowed
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "<script" not in SCRIPT.sub("", answer.text)
        assert not re.search(r"\son\w+=|\sstyle=|javascript:", answer.text)
        assert set(re.findall(r'(?:src|href|action)="(\w+:)?//', answer.text)) == set()
        assert '<html lang="en">' in answer.text
        assert answer.text.count("<h1") == 1
    assert "max-age" in olga.get("/style.css").headers["cache-control"]


@pytest.mark.parametrize("learns", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_what_people_write_is_escaped_everywhere(world, olga, learns):
    title, name = f"Hearts {EVIL}", "eve <img src=x onerror=alert(1)>"
    make_study(world.store, "evil", DESIGN.to_bytes(), owner="olga", title=title)
    world.add(name, "site", study="evil")
    world.add("second", "site", study="evil")
    assert world.push(name, sketch_of(name).to_bytes(), study="evil").status_code == 201
    if learns:
        assert world.push("second", sketch_of("second").to_bytes(), study="evil").is_success
    digest = world.ask("olga", "GET", "/studies/evil/uploads").json()[0]["digest"]
    assert olga.post(f"/studies/evil/uploads/{digest}/set-aside", because=EVIL).status_code == 303
    other = world.push(name, sketch_of(name, n_records=60).to_bytes(), study="evil").json()
    seen = [f"/studies/evil{end}" for end in PAGES]
    if learns:
        olga.post("/studies/evil/models", task="kmeans", number="2")
        olga.post("/studies/evil/sources")
        seen.append("/studies/evil/models/kmeans/2")
    for path in seen:
        text = SCRIPT.sub("", olga.wait(path))
        assert "Hearts &lt;script&gt;alert(1)&lt;/script&gt;" in text
        assert "<script" not in text
        assert "<img" not in text
    assert "<title>Hearts &lt;script&gt;" in olga.text("/studies/evil")
    assert not learns or "eve &lt;img" in olga.text("/studies/evil/sources")
    told = olga.get(f"/studies/evil/uploads/{other['digest']}").headers["content-disposition"]
    assert re.fullmatch(r"attachment; filename=\"[\w.-]+\"; filename\*=UTF-8''[\w.%~-]+", told)


def test_the_page_of_a_study_says_what_is_expected_and_who_has_reported(world, north, olga):
    text = north.text("/studies/heart")
    assert "Make your sketch" in text
    assert "0 of 2 sites" in text
    assert "When all 2 have reported" in text
    file = {"file": ("north.sketch", sketch_of("north").to_bytes())}
    answer = north.post("/studies/heart/uploads", files=file)
    assert answer.headers["location"] == "/studies/heart?done=handed-in"
    text = north.text("/studies/heart?done=handed-in")
    assert "on the collector&#39;s disk" in text
    assert "1 of 2 sites" in text
    assert "There is nothing for you to do now" in text
    assert "epsilon = 1, delta = 1e-06" in text
    answer = north.post("/studies/heart/uploads", files=file)
    assert answer.headers["location"].endswith("done=duplicate")
    total = north.get("/studies/heart/total.sketch")
    assert total.content == world.ask("north", "GET", "/studies/heart/total").content
    assert north.get("/studies/heart/design.json").content == DESIGN.to_bytes()
    assert "south" in olga.text("/studies/heart").partition("Next steps of others")[2]


def test_a_design_for_regression_has_no_number_of_components(world, olga):
    design = ps.Design.plan(
        task="regression",
        target="systolic",
        domain=ps.Box([0, 0], [100, 200], columns=["age", "systolic"]),
        budget=ps.Budget(1.0, 1e-6),
        n_records=5000,
        random_state=0,
    )
    make_study(world.store, "line", design.to_bytes(), owner="olga")
    world.add("west", "site", study="line")
    assert "of what the other columns tell about the target" in olga.text("/studies/line")
    records = np.random.default_rng(0).uniform([0, 0], [100, 200], size=(5000, 2))
    sketch = ps.sketch(records, design, source="west")
    assert world.push("west", sketch.to_bytes(), "line").status_code == 201
    form = olga.text("/studies/line/models")
    assert 'min="1" max="40" value=""' in form
    assert "Principal components" in form
    assert "Find the number of clusters" not in form
    olga.post("/studies/line/models", task="pca", number="")
    assert "says no number" in olga.wait("/studies/line/models/pca/default")
    olga.post("/studies/line/models", task="pca", number="1")
    assert "says no number" not in olga.wait("/studies/line/models/pca/1")
    assert '<option value="2" selected>systolic</option>' in form
    assert "Means and shares by" not in form  # no column has labels
    for number, name in (("2", "systolic"), ("1", "age")):
        olga.post("/studies/line/models", task="regression", number=number)
        assert "What it cost" in olga.wait(f"/studies/line/models/regression/{number}")
        model = olga.get(f"/studies/line/models/regression/{number}/model.json")
        assert ps.RegressionModel.from_bytes(model.content).target == name
    assert "Regression, of systolic" in olga.text("/studies/line/models")
    for number in ("3", "0", "x"):
        answer = olga.post("/studies/line/models", task="regression", number=number)
        assert answer.status_code == 422


def test_labels_have_classifiers_and_groups(world, olga):
    schema = ps.Schema([ps.Number("age", 0, 100), ps.Category("ward", ["a", "b"])])
    design = ps.Design.plan(
        task="classification", domain=schema, budget=ps.Budget(5.0, 1e-6), n_records=5000
    )
    make_study(world.store, "ward", design.to_bytes(), owner="olga")
    world.add("west", "site", study="ward")
    rng = np.random.default_rng(0)
    records = np.column_stack([rng.uniform(0, 100, 5000), rng.integers(2, size=5000)])
    table = pa.table(
        {"age": records[:, 0], "ward": np.array(["a", "b"])[records[:, 1].astype(int)]}
    )
    sketch = ps.sketch(table, design, source="west")
    assert world.push("west", sketch.to_bytes(), "ward").status_code == 201
    for task, number, words in (
        ("regression", "2", "not odds ratios"),
        ("summary", "2", "of all records and by ward"),
        ("summary", "", "Means and shares"),
    ):
        olga.post("/studies/ward/models", task=task, number=number)
        assert words in olga.wait(f"/studies/ward/models/{task}/{number or 'default'}")


def test_refused_uploads_are_told_in_words(north):
    file = {"file": ("a.sketch", sketch_of("south").to_bytes()[:-9])}
    answer = north.post("/studies/heart/uploads", files=file)
    assert answer.status_code == 422
    assert "Back to the study" in answer.text
    assert north.post("/studies/heart/uploads").status_code == 422


def test_nobody_sees_more_than_their_role(world, north):
    world.push("south", sketch_of("south").to_bytes())
    world.add("stranger", "site", study="heart")
    make_study(world.store, "other", DESIGN.to_bytes(), owner="olga")
    digest = world.ask("olga", "GET", "/studies/heart/uploads").json()[0]["digest"]
    assert north.get(f"/studies/heart/uploads/{digest}").status_code == 403
    assert digest not in north.text("/studies/heart/files")
    assert north.get("/studies/heart/sources").status_code == 403
    assert "Close the study" not in north.text("/studies/heart")
    assert "Add a member" not in north.text("/studies/heart/people")
    other, none = (north.get(f"/studies/{name}") for name in ("other", "none"))
    assert (other.status_code, other.text) == (403, none.text)
    for path, fields in FORMS[:3]:
        assert north.post(path, **fields).status_code == 403
    for end in ("/design.json", "/total.sketch", "/events.json", *PAGES):
        assert Browser(world).get(f"/studies/heart{end}").status_code == 303
        assert north.get(f"/studies/other{end}").status_code == 403


def test_owners_add_renew_revoke_and_close(world, olga):
    text = olga.post("/studies/heart/people", name="west", role="site").text
    token = re.search(r"psk_[\w-]{43}", text).group()
    assert token not in olga.text("/studies/heart/people")
    world.tokens["west"] = token
    west = Browser(world, "west")
    assert "Make your sketch" in west.text("/studies/heart")
    text = olga.post("/studies/heart/people/renew", name="west").text
    assert west.get("/").status_code == 303
    world.tokens["west"] = re.search(r"psk_[\w-]{43}", text).group()
    west = Browser(world, "west")
    answer = olga.post("/studies/heart/people/revoke", name="west")
    assert answer.headers["location"].endswith("done=revoked")
    assert west.get("/").status_code == 303
    assert find_member(world.store, "west").is_revoked
    assert olga.post("/studies/heart/people/take", name="west").status_code == 303
    assert olga.post("/studies/heart/close").status_code == 422
    assert olga.post("/studies/heart/close", sure="yes").status_code == 303
    assert "No more sketches are taken" in olga.text("/studies/heart")


def answering(facts):
    """A queue whose jobs all have this answer, whatever they are asked."""
    answer = json.dumps({"page": "", "body": "", "sheet": "", "model": None, "facts": facts})
    program = f"import sys; sys.stdin.buffer.read(); print({answer!r})"
    return JobQueue(command=(sys.executable, "-c", program))


@pytest.mark.parametrize(
    ("alarms", "proposes"), [([], True), (["south: glucose: 18 times <b>what</b>"], False)]
)
def test_a_study_is_closed_after_a_comparison_and_never_beside_an_alarm(world, alarms, proposes):
    world.client.app.state.jobs = answering({"alarms": alarms})
    olga, north = Browser(world, "olga"), Browser(world, "north")
    proposal = "close the study: all sites have reported"
    world.push("north", sketch_of("north").to_bytes())
    assert "being compared" not in olga.text("/studies/heart")  # there is one sketch
    world.push("south", sketch_of("south", n_records=60).to_bytes())
    assert "see on the page of the study whether its sites differ" in olga.text("/")
    while "being compared" in (text := olga.text("/studies/heart")):
        assert proposal not in text.lower()
        time.sleep(0.05)
    assert (proposal in text.lower()) == proposes
    assert ("18 times &lt;b&gt;what" in text) == (not proposes)
    assert ("Settle the alarm" in text) == (not proposes)
    assert ("the study should stay open" in text) == (not proposes)
    assert ("18 times" in north.text("/studies/heart")) == (not proposes)  # all members see it
    assert (proposal in olga.text("/")) == proposes
    assert ("1 alarm" in olga.text("/")) == (not proposes)
    steps = world.ask("olga", "GET", "/studies/heart").json()["steps"]
    assert [step["text"].split(" (")[0] for step in steps] == ["compare the sites"]


SLEEPS = (sys.executable, "-c", "import time; time.sleep(60)")


def both_report(world):
    world.push("north", sketch_of("north").to_bytes())
    world.push("south", sketch_of("south", n_records=60).to_bytes())


def test_no_study_is_closed_while_its_sites_are_compared(world):
    """The form of an earlier page is refused, too, whether the comparison was begun or not."""
    world.client.app.state.jobs = jobs = JobQueue(command=SLEEPS)
    olga = Browser(world, "olga")
    assert "Close the study" in olga.text("/studies/heart")
    both_report(world)
    answer = olga.post("/studies/heart/close", sure="yes")
    assert answer.status_code == 423
    assert "there may be an alarm" in answer.text
    text = olga.text("/studies/heart")
    assert 'action="/studies/heart/close"' not in text
    assert "can be closed once its sites are compared" in text
    assert "lose the study" not in text
    assert world.ask("olga", "GET", "/studies/heart").json()["state"] == "open"
    jobs.close()


def test_an_alarm_that_came_after_the_page_stops_its_form(world):
    world.client.app.state.jobs = answering({"alarms": ["south: x"], "sources": ["south"]})
    olga = Browser(world, "olga")
    both_report(world)
    while "being compared" in (text := olga.text("/studies/heart")):
        time.sleep(0.05)
    assert 'name="in_spite" value="yes"' in text
    answer = olga.post("/studies/heart/close", sure="yes")
    assert answer.status_code == 423
    assert "The comparison of the sites has an alarm: south: x" in answer.text
    assert world.ask("olga", "GET", "/studies/heart").json()["state"] == "open"
    assert '<a href="/studies/heart/files#aside">Set its sketch aside</a>' in text
    assert 'id="aside"' in olga.text("/studies/heart/files")
    expected = text.partition("What to expect of the total")[2].partition("</section>")[0]
    assert "In doubt" in expected
    assert not re.search("Good|Rough|Hopeless", expected)
    assert "south: x" in olga.text("/studies/heart/models")
    assert olga.post("/studies/heart/close", sure="yes", in_spite="yes").status_code == 303


def test_many_waiting_jobs_are_no_reason_to_close_without_a_comparison(world, monkeypatch):
    def full(*arguments):
        raise CollectorError("many models wait to be learned; try again later", "often")

    monkeypatch.setattr(world.client.app.state.jobs, "submit", full)
    olga = Browser(world, "olga")
    both_report(world)
    assert "being compared" in olga.text("/studies/heart")
    assert olga.post("/studies/heart/close", sure="yes").status_code == 423


def test_the_site_of_an_alarm_is_told_what_to_do(world):
    world.client.app.state.jobs = answering({"alarms": ["south: x"], "sources": ["south"]})
    north, south = Browser(world, "north"), Browser(world, "south")
    both_report(world)
    while "being compared" in (text := south.text("/studies/heart")):
        time.sleep(0.05)
    assert "Check the units of your table" in text
    assert "There is nothing for you to do now" not in text
    assert "check the units of your table" in south.text("/")
    assert "There is nothing for you to do now" in north.text("/studies/heart")


def test_a_comparison_that_fails_proposes_to_compare_elsewhere(world):
    world.client.app.state.jobs = JobQueue(command=(sys.executable, "-c", "raise SystemExit(1)"))
    olga = Browser(world, "olga")
    world.push("north", sketch_of("north").to_bytes())
    world.push("south", sketch_of("south", n_records=60).to_bytes())
    while "being compared" in (text := olga.text("/studies/heart")):
        time.sleep(0.05)
    assert "could not be compared here" in text
    assert "Compare the sites (privsketch compare), and close" in text
    assert olga.post("/studies/heart/close", sure="yes").status_code == 303


def test_who_may_make_studies_makes_one(world, olga, north):
    file = {"design": ("d.json", DESIGN.to_bytes())}
    fields = {"name": "lungs", "title": "Lungs", "sealed": "", "last_day": "2100-01-01"}
    assert north.post("/new", files=file, **fields).status_code == 403
    answer = olga.post("/new", files=file, **fields)
    assert answer.headers["location"] == "/studies/lungs/people?done=made"
    assert "Last day 2100-01-01" in olga.text("/studies/lungs")
    assert olga.post("/new", files=file, **fields).status_code == 409
    assert olga.post("/new", **fields).status_code == 422


def test_history_tells_whether_the_chain_is_intact(world, olga):
    world.push("north", sketch_of("north").to_bytes())
    text = olga.text("/studies/heart/history")
    assert "The chain is unbroken." in text
    assert "<b>north</b> uploaded a sketch of north" in text
    with world.store.writing() as connection:
        altered = update(events).where(events.c.study == "heart", events.c.number == 2)
        connection.execute(altered.values(member="mallory"))
    text = olga.text("/studies/heart/history")
    assert "The chain is broken." in text
    assert "unbroken" not in text
