"""The demo of a collector: five hospitals push to a service, whose pages show the model.

It runs an open study, then a sealed one with two tellers. The service, every hospital and every
teller are processes of their own, with folders of their own, and exchange files only through the
collector. The demo saves pages, and pictures of them if Chromium is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, ProxyHandler, Request, build_opener

import privsketch as ps
from privsketch._base.errors import PrivsketchError
from privsketch._base.formats import write_file
from privsketch.cli.demo_steps import (
    DELTA,
    EPSILON,
    N_CLUSTERS,
    N_SITES,
    SCHEMA,
    answer_demo,
    error_ratio,
    indent,
    step,
)
from privsketch.cli.shell.answer import say
from privsketch.cli.shell.output import require_empty
from privsketch.cli.shell.progress import spinner
from privsketch_studies.cli.study.demo import EPSILON as SEALED_EPSILON
from privsketch_studies.cli.study.demo import (
    TELLERS,
    Person,
    all_records,
    files_of,
    hospitals,
    in_parallel,
)

OWNER = "olga"  # of both studies
_MODEL_SECONDS = 300
_TITLES = {"groups": "Groups of patients in five hospitals", "sealed": "The same groups, sealed"}
_FORM_TOKEN = re.compile(r'name="form" value="([0-9a-f]{64})"')
_STYLE_LINK = re.compile(r'href="/style\.css[^"]*"')
_DESIGN = f"privsketch design -k {N_CLUSTERS} --schema schema.json --delta {DELTA} --seed 7"


def run_collector_demo(folder: Path, n_records: int) -> None:
    """Run the demo with `n_records` patients at each site; files stay in `folder`."""
    from privsketch_studies.collector.store.engine import Store  # refuses if packages are missing

    require_empty(folder, "ballots are cast once")
    started = time.perf_counter()
    say("Five hospitals report to a collector. It never sees a record, and it has web pages.")
    machine = Person(folder / "collector")
    Store(str(machine.folder / "collector.db")).close()
    sites = hospitals(folder, n_records)
    tellers = [Person(folder / name) for name in TELLERS]
    owner, pages = Person(folder / OWNER), folder / "pages"
    pages.mkdir()
    SCHEMA.save(owner.folder / "schema.json")
    with _serving(machine) as address:
        say(f"    serving at {address}")
        _open_study(address, machine, owner, sites, n_records)
        visitor = Visitor(address, (owner.folder / f"{OWNER}.token").read_text().strip())
        model = visitor.learn("groups", owner.folder / "model.json")
        for name in ("", "/models", f"/models/kmeans/{N_CLUSTERS}", "/history"):
            visitor.save(f"/studies/groups{name}", pages)
        say(f"    the page of the model is {pages / 'groups-model.html'}")
        _sealed_study(address, machine, owner, sites, tellers, n_records)
        visitor.learn("sealed", owner.folder / "sealed-model.json")
        for name in ("", f"/models/kmeans/{N_CLUSTERS}"):
            visitor.save(f"/studies/sealed{name}", pages)
        visitor.save("/", pages)
    if _take_pictures(pages):
        say(f"    pictures of the pages are in {pages}")
    records = all_records(sites)
    ratio = error_ratio(records, model)
    say(f"    squared error {ratio:.3f} times that of k-means on the {len(records):,} records")
    seconds, report = time.perf_counter() - started, pages / "groups-model.html"
    say(f"\nDone in {seconds:.0f} s. Open {report}, or serve it again:")
    say(f"  $ privsketch collector serve --store {machine.folder / 'collector.db'}", fg="cyan")
    say(f"    and sign in with the token in {owner.folder / f'{OWNER}.token'}")
    design = ps.Design.load(owner.folder / "groups.json")
    answer_demo(files_of(folder), design, model, ratio, started)


@contextmanager
def _serving(machine: Person) -> Iterator[str]:
    """Run a service in a process of its own, and yield its address."""
    step(
        "An operator runs a collector, and adds its first member",
        f"privsketch collector add-member {OWNER} --makes-studies --token-file {OWNER}.token; "
        "privsketch collector serve",
    )
    command = [sys.executable, "-m", "privsketch.cli.main", "collector", "serve", "--port", "0"]
    with (machine.folder / "log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 (this program, with arguments of its own)
            command,
            cwd=machine.folder,
            env=machine.environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        line = "" if process.stdout is None else process.stdout.readline()
        match = re.search(r"http://[0-9.]+:[0-9]+", line)
        if match is None:
            raise PrivsketchError("the service did not start")
        yield match.group()
    finally:
        process.terminate()
        process.communicate()


def _add(machine: Person, person: Person, study: str, role: str, *, known: bool = False) -> None:
    """Add a person to a study, and give them their token."""
    command = ["collector", "add-member", person.name, "--study", study, "--role", role]
    if known:
        machine.run(*command, "--known")
        return
    token = f"{person.name}.token"
    machine.run(*command, "--token-file", token)
    shutil.move(machine.folder / token, person.folder / token)


def _study(machine: Person, owner: Person, name: str, *options: object) -> None:
    owner.hand(f"{name}.json", machine)
    machine.run(
        *("collector", "add-study", name, f"{name}.json", "--owner", OWNER),
        *("--title", _TITLES[name], *options),
    )


def _open_study(
    address: str, machine: Person, owner: Person, sites: Sequence[Person], n_records: int
) -> None:
    machine.run("collector", "add-member", OWNER, "--makes-studies", "--token-file", "o.token")
    shutil.move(machine.folder / "o.token", owner.folder / f"{OWNER}.token")
    step(
        "The owner writes the public design and makes a study; every hospital gets a token",
        f"{_DESIGN} --epsilon {EPSILON} --records {n_records} -o groups.json; "
        f"privsketch collector add-study groups groups.json --owner {OWNER}",
    )
    options = ("--epsilon", EPSILON, "--records", n_records, "-o", "groups.json")
    owner.run(*_DESIGN.split()[1:], *options)
    _study(machine, owner, "groups")
    for site in sites:
        _add(machine, site, "groups", "site")
    step(
        "Every hospital pulls the design, makes its sketch and pushes it, in its own process",
        f"privsketch collector pull {address}/studies/groups -o groups --token-file site-1.token; "
        "privsketch sketch groups/design.json visits.csv -o site-1.sketch; "
        "privsketch collector push ...",
    )

    def report(site: Person) -> str:
        client = _Client(site, f"{address}/studies/groups", "groups")
        client.pull()
        table, file = site.table.name, f"{site.name}.sketch"
        site.run("sketch", "groups/design.json", table, "--source", site.name, "-o", file)
        return client.push(file)

    with spinner("five sites"), ThreadPoolExecutor(2) as pool:
        outputs = list(pool.map(report, sites))
    say(indent("".join(outputs)))
    step("The owner signs in at the pages and learns clusters", None)


class _Client:
    """Person with access to a study at the collector."""

    def __init__(self, person: Person, url: str, folder: str) -> None:
        self.person, self._url, self._folder = person, url, folder
        self._token = ("--token-file", f"{person.name}.token")

    def pull(self) -> None:
        self.person.run("collector", "pull", self._url, "-o", self._folder, *self._token)

    def push(self, *files: str) -> str:
        return self.person.run("collector", "push", self._url, *files, *self._token)


def _sealed_study(
    address: str,
    machine: Person,
    owner: Person,
    sites: Sequence[Person],
    tellers: Sequence[Person],
    n_records: int,
) -> None:
    """Run a sealed study of the same hospitals with two tellers; the collector is the mailbox."""
    step(
        "A sealed study of the same tables: the collector is the mailbox, and cannot read ballots",
        f"{_DESIGN} --epsilon {SEALED_EPSILON} --holders {N_SITES} -o sealed.json; "
        "privsketch collector add-study sealed sealed.json --sealed ...",
    )
    options = ("--epsilon", SEALED_EPSILON, "--holders", N_SITES, "--records", n_records)
    owner.run(*_DESIGN.split()[1:], *options, "-o", "sealed.json")
    _study(machine, owner, "sealed", "--sealed")
    for site in sites:
        _add(machine, site, "sealed", "site", known=True)
    for teller in tellers:
        _add(machine, teller, "sealed", "teller")
    url = f"{address}/studies/sealed"
    at_owner = _Client(owner, url, "box")
    at_sites, at_tellers = (
        [_Client(person, url, "box") for person in people] for people in (sites, tellers)
    )
    for teller in tellers:
        teller.make_key()
        other_tellers = [other for other in tellers if other is not teller]
        teller.hand(f"{teller.name}.pub", *sites, *other_tellers)  # compared by phone

    step("Everyone enrols; the owner makes the study from the cards, and tellers accept it", None)
    with spinner("cards"):
        in_parallel(_enrol, [*at_sites, *at_tellers])
        at_owner.pull()
        owner.make_key()
        cards = [f"box/{path.name}" for path in sorted((owner.folder / "box").glob("*.card"))]
        closer = ("--owner", f"{OWNER}.pub")
        owner.run("study", "make", "box/design.json", *cards, *closer, "-o", "sealed.study")
        at_owner.push("sealed.study")
        in_parallel(_accept, at_tellers)
    step("Hospitals cast ballots, tellers check them, and the owner closes the list", None)
    with spinner("ballots"):
        in_parallel(_cast, at_sites)
        in_parallel(_check, at_tellers)
        at_owner.pull()
        checks = [part for name in TELLERS for part in ("--checked", f"box/{name}.checked")]
        box = ("box/sealed.study", "box", "--key", f"{OWNER}.key")
        owner.run("study", "close", *box, *checks, "-o", "sealed.closed")
        at_owner.push("sealed.closed")
    step("Each teller tallies once; then the pages show the total", None)
    with spinner("tallies"):
        in_parallel(_tally, at_tellers)


def _enrol(client: _Client) -> None:
    person = client.person
    client.pull()
    if person.name not in TELLERS:  # whose keys are pinned already
        person.make_key()
    for name in TELLERS:
        if name != person.name:
            person.run("key", "trust", f"{name}.pub")
    client.push(person.enrol("box/design.json"))


def _cast(client: _Client) -> None:
    client.pull()
    client.push(client.person.seal("box/sealed.study"))


def _accept(client: _Client) -> None:
    teller = client.person
    client.pull()
    box = teller.folder / "box"
    before = set(box.glob("sealed.study.*.sig"))
    teller.run("study", "accept", "box/sealed.study", "--key", f"{teller.name}.key")
    (signature,) = set(box.glob("sealed.study.*.sig")) - before
    client.push(f"box/{signature.name}")


def _check(client: _Client) -> None:
    client.pull()
    ballots = [f"box/{path.name}" for path in (client.person.folder / "box").glob("*.ballot")]
    client.push(client.person.check("box/sealed.study", ballots))


def _tally(client: _Client) -> None:
    client.pull()
    client.push(client.person.tally("box/sealed.study", "box", "box/sealed.closed"))


class Visitor:
    """Visitor of the pages, without a browser."""

    def __init__(self, address: str, token: str) -> None:
        self._address = address
        self._opener = build_opener(ProxyHandler({}), HTTPCookieProcessor(CookieJar()))
        self.post("/sign-in", token=token)

    def get(self, path: str) -> bytes:
        """Return the content at an address."""
        return self._send(Request(self._address + path))  # noqa: S310 (of the demo's own service)

    def post(self, path: str, **fields: str) -> bytes:
        """Send a form and return the answer."""
        data = urlencode(fields).encode("ascii")
        return self._send(Request(self._address + path, data))  # noqa: S310

    def _send(self, request: Request) -> bytes:
        request.add_header("Origin", self._address)
        request.add_header("Accept", "text/html")
        try:
            with self._opener.open(request, timeout=60) as response:
                data = response.read()
        except HTTPError as error:
            raise PrivsketchError(f"{request.selector}: status {error.code}") from None
        return bytes(data)

    def learn(self, study: str, output: Path) -> ps.ClusterModel:
        """Learn clusters at the pages of a study, and wait for the model."""
        at = f"/studies/{study}/models"
        form = _FORM_TOKEN.search(self.get(at).decode("utf-8"))
        if form is None:
            raise PrivsketchError(f"{at}: no form")
        with spinner("learning at the collector"):
            self.post(at, form=form.group(1), task="kmeans", number=str(N_CLUSTERS))
            end = time.monotonic() + _MODEL_SECONDS
            while b'http-equiv="refresh"' in self.get(f"{at}/kmeans/{N_CLUSTERS}"):
                if time.monotonic() > end:
                    raise PrivsketchError(f"{at}: it takes too long")
                time.sleep(0.5)
            write_file(output, self.get(f"{at}/kmeans/{N_CLUSTERS}/model.json"))
        model = ps.load(output)
        if not isinstance(model, ps.ClusterModel):
            raise PrivsketchError(f"{output}: not a model of clusters")
        return model

    def save(self, path: str, folder: Path) -> None:
        """Save a page, with its style sheet beside it."""
        name = path.removeprefix("/studies/").replace(f"models/kmeans/{N_CLUSTERS}", "model")
        text = self.get(path).decode("utf-8")
        write_file(folder / "style.css", self.get("/style.css"))
        page = _STYLE_LINK.sub('href="style.css"', text)
        page = _FORM_TOKEN.sub('name="form" value=""', page)
        write_file(folder / f"{name.strip('/').replace('/', '-') or 'studies'}.html", page.encode())


def _take_pictures(folder: Path) -> bool:
    """Take pictures of all pages with Chromium; return whether that worked."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        return False
    options = ["--headless", "--disable-gpu", "--hide-scrollbars"]
    if os.name == "posix" and os.geteuid() == 0:  # Chromium has no sandbox for root
        options.append("--no-sandbox")
    is_taken = []
    with spinner("pictures"):
        for page in sorted(folder.glob("*.html")):
            picture = page.with_suffix(".png").resolve()
            size = "--window-size=1280,2000"
            command = [chromium, *options, size, f"--screenshot={picture}", page.resolve().as_uri()]
            subprocess.run(command, capture_output=True, check=False, timeout=120)  # noqa: S603
            is_taken.append(picture.is_file())
    return all(is_taken)
