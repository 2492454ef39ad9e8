"""Keys and signatures from the shell: designer, sites, collector, and those who interfere."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

import privsketch as ps
from privsketch.cli import given_passphrase
from privsketch.signing import digit_groups, pinned_keys
from tests import seams
from tests.answers import validated
from tests.commands import DATA, INTEGRITY, USAGE, contents, run, succeeded, times_told

PASSPHRASE = "correct horse"
DESIGN = ["design", "-k", 2, "--box", -4, 4, "--dim", 3, "--epsilon", 1, "--delta", 1e-6]
DESIGN += ["--records", 1000, "--seed", 7, "-o", "study.json"]


@pytest.fixture(autouse=True)
def home(tmp_path_factory, monkeypatch):
    """A folder of pinned keys for this test alone."""
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("PRIVSKETCH_HOME", str(folder))
    return folder


@pytest.fixture
def quick_lock(monkeypatch):
    """A lock that takes no time, and no memory, to try."""
    seams.set(monkeypatch, "encryption.SCRYPT", {"n": 16, "r": 1, "p": 1})


@pytest.fixture
def passphrase(folder, monkeypatch, quick_lock):
    """The passphrase lies in a file that the environment names."""
    (folder / "pass").write_text(PASSPHRASE + "\n")
    (folder / "pass").chmod(0o600)
    monkeypatch.setenv("PRIVSKETCH_PASSPHRASE_FILE", "pass")


@pytest.fixture
def study(folder, passphrase):
    """Keys of a designer and two sites, a signed design, tables."""
    for name in ("designer", "site-1", "site-2"):
        succeeded("key", "make", f"{name}.key")
    succeeded(*DESIGN, "--key", "designer.key")
    for number in (1, 2):
        rows = "".join(f"{i % 3},{number},-1\n" for i in range(200))
        (folder / f"data-{number}.csv").write_text("a,b,c\n" + rows)
    return folder


def sketch(number, *more, key=None):
    return run(
        "sketch",
        "study.json",
        f"data-{number}.csv",
        "-o",
        f"s{number}.sketch",
        *(["--key", key or f"site-{number}.key"]),
        *more,
    )


def answer(*arguments, code=0):
    """What a command tells machines, which its schema allows."""
    result = run(*arguments, "--json")
    assert result.exit_code == code, result.output
    told = json.loads(result.stdout)
    schema = told["command"].replace(" ", "-")
    with pytest.raises(jsonschema.ValidationError):  # a schema that allows everything says nothing
        validated({**told, "more": 1}, schema)
    return validated(told, schema)


def failed(folder, *arguments, words, code=None):
    """A command that must fail, with these words, and change no file."""
    before = contents(folder)
    result = run(*arguments)
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in ((2, 3, 4, 5) if code is None else (code,)), result.output
    assert words in result.stderr, result.stderr
    assert result.stderr.count("nothing was spent") == times_told(arguments)
    assert "Traceback" not in result.output
    assert contents(folder) == before
    return result


# ---------------------------------------------------------------- the whole story


def test_the_whole_story(study):
    told = answer("key", "verify", "study.json", "--trust", "designer.pub")
    assert told["files"][0]["kind"] == "design"
    limits = ("--max-epsilon", 1, "--max-delta", 1e-6)
    for number in (1, 2):
        made = sketch(number, "--signed-by", "designer.pub", *limits)
        assert made.exit_code == 0, made.output
        assert f"signed by   site-{number}, in s{number}.sketch.sig" in made.stdout
        assert ps.Sketch.load(f"s{number}.sketch").sources == (f"site-{number}",)
    sites = ("--signed-by", "site-1.pub", "--signed-by", "site-2.pub")
    merged = succeeded("merge", "s1.sketch", "s2.sketch", "-o", "all.sketch", *sites)
    assert merged.stderr == ""
    told = answer("key", "verify", "s1.sketch", "s2.sketch", "--trust", "site-1.pub", code=5)
    assert [file["is_valid"] for file in told["files"]] == [True, False]
    assert told["files"][0]["signer"]["name"] == "site-1"
    assert "not trusted" in told["files"][1]["problem"]
    assert told["error"]["kind"] == "integrity"
    made = run("design", *DESIGN[1:-1], "other.json", "--key", "designer.key", "--json")
    assert json.loads(made.stdout)["written"] == ["other.json", "other.json.sig"]


def test_designs_and_sketches_are_what_they_were_without_a_key(study, folder):
    signed = (folder / "study.json").read_bytes()
    succeeded(*DESIGN[:-1], "other.json")
    assert (folder / "other.json").read_bytes() == signed
    assert not (folder / "other.json.sig").exists()
    assert run("sketch", "other.json", "data-1.csv", "-o", "plain.sketch").exit_code == 0
    assert ps.Sketch.load("plain.sketch").sources == ("plain",)


# ---------------------------------------------------------------- keygen


def test_keygen(folder, passphrase):
    told = answer("key", "make", "h3.key", "--name", "Site 3, Ærø")
    assert told["has_passphrase"]
    key = ps.Key.load("h3.key", passphrase=PASSPHRASE)
    assert (told["name"], told["fingerprint"]) == ("Site 3, Ærø", key.fingerprint)
    assert ps.PublicKey.load("h3.pub") == key.public
    assert (folder / "h3.key").stat().st_mode & 0o777 == 0o600
    again = succeeded("key", "make", "h4.key")
    assert digit_groups(ps.PublicKey.load("h4.pub").fingerprint) in again.stdout
    assert "site 3" in succeeded("inspect", "h3.pub").stdout.lower()


@pytest.mark.parametrize("command", ["make", "sign", "verify", "trust"])
def test_pages_of_help_fit_a_terminal(command):
    assert max(map(len, succeeded("key", command, "--help").stdout.splitlines())) <= 80


@pytest.mark.parametrize("taken", ["h3.key", "h3.pub"])
def test_keygen_overwrites_nothing(folder, passphrase, taken):
    (folder / taken).write_text("mine")
    failed(folder, "key", "make", "h3.key", words="never overwritten", code=DATA)


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (["h3"], "ends in .key", USAGE),
        (["nowhere/h3.key"], "no such folder", DATA),
        (["h3.key", "--name", "a/b"], "printable", USAGE),
        (["h3.key", "--passphrase-file", "missing"], "missing", DATA),
        (["h3.key", "--passphrase-file", "short"], "at least 8 characters", USAGE),
        (["h3.key", "--passphrase-file", "binary"], "not text", DATA),
        (["h3.key", "--passphrase-file", "pass", "--no-passphrase"], "does not go with", USAGE),
    ],
)
def test_keygen_refuses(folder, passphrase, arguments, words, code):
    (folder / "short").write_text("1234567\n")
    (folder / "binary").write_bytes(b"\xff\xfe secret")
    for name in ("short", "binary"):
        (folder / name).chmod(0o600)
    told = failed(folder, "key", "make", *arguments, words=words, code=code)
    assert "1234567" not in told.output


@pytest.mark.parametrize("encoding", ["utf-8", "ascii:surrogateescape", "latin-1"])
def test_a_passphrase_is_the_same_from_everywhere(folder, encoding):
    """In UTF-8 with or without a mark, by file and by standard input, whatever the shell speaks."""
    (folder / "marked").write_bytes(b"\xef\xbb\xbf" + "grüne Wiese\r\n".encode())
    (folder / "marked").chmod(0o600)
    assert given_passphrase("h3.key", Path("marked")) == "grüne Wiese"
    code = (
        "from pathlib import Path; from privsketch.cli.shell.signing import given_passphrase\n"
        "print(ascii(given_passphrase('h3.key', Path('-'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input="grüne Wiese\n".encode(), stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONIOENCODING": encoding}, check=True,
    )  # fmt: skip
    assert done.stdout.decode().strip() == ascii("grüne Wiese")


def test_a_passphrase_is_not_cut(folder):
    for name in ("long", "longest"):
        (folder / name).touch(mode=0o600)
    (folder / "long").write_text("a" * 4097)
    failed(
        folder, "key", "make", "h3.key", "--passphrase-file", "long", words="more than 4096 bytes"
    )
    (folder / "longest").write_text("a" * 4095 + "\n" + "b" * 9000)
    assert given_passphrase("h3.key", Path("longest")) == "a" * 4095


def test_without_a_terminal_somebody_must_say_where_the_passphrase_is(folder):
    failed(folder, "key", "make", "h3.key", words="--passphrase-file")


def test_a_key_without_a_passphrase_is_asked_for_and_told(folder):
    told = succeeded("key", "make", "h3.key", "--no-passphrase")
    assert "whoever can read it can sign as h3" in told.stderr
    found = answer("key", "make", "h4.key", "--no-passphrase")
    assert not found["has_passphrase"]
    assert "can sign as h4" in found["cautions"][0]
    assert ps.Key.load("h3.key").name == "h3"


@pytest.mark.skipif(os.name != "posix", reason="modes say something else here")
def test_a_passphrase_that_others_can_read_is_refused(study, folder, monkeypatch):
    signing = ("key", "sign", "study.json", "--key", "site-1.key", "--force")
    for mode in (0o640, 0o604, 0o644, 0o622):
        (folder / "pass").chmod(mode)
        told = failed(folder, *signing, words="chmod 600 pass", code=INTEGRITY)
        assert PASSPHRASE not in told.output
        failed(folder, "key", "make", "new.key", words="chmod 600 pass", code=INTEGRITY)
    (folder / "link").symlink_to("pass")
    monkeypatch.setenv("PRIVSKETCH_PASSPHRASE_FILE", "link")
    failed(folder, *signing, words="chmod 600 link", code=INTEGRITY)
    (folder / "pass").chmod(0o400)
    succeeded(*signing)


@pytest.mark.skipif(os.name != "posix", reason="modes say something else here")
def test_a_file_on_standard_input_is_refused_as_a_named_one_is(study, folder):
    command = [sys.executable, "-m", "privsketch.cli.main", "key", "sign", "study.json", "--force"]
    command += ["--key", "site-1.key", "--passphrase-file", "-"]
    for mode in (0o640, 0o604, 0o600):
        (folder / "pass").chmod(mode)
        with open("pass") as stream:
            done = subprocess.run(command, stdin=stream, capture_output=True, text=True)
        is_refused = "chmod 600 the file on standard input" in done.stderr
        assert is_refused == (mode != 0o600), done.stderr
        assert not is_refused or done.returncode == INTEGRITY


def test_passphrases_from_a_pipe_that_a_shell_hands_over(study, folder):
    """`--passphrase-file <(pass show site-1)` is nobody else's."""
    reading, writing = os.pipe()
    os.write(writing, PASSPHRASE.encode() + b"\n")
    os.close(writing)
    with open(reading, "rb"):
        descriptor = ["--passphrase-file", f"/dev/fd/{reading}"]
        succeeded("key", "sign", "study.json", "--key", "site-1.key", "--force", *descriptor)


def test_passphrases_from_standard_input_and_from_a_descriptor(study, folder):
    command = [sys.executable, "-m", "privsketch.cli.main", "key", "sign", "study.json", "--force"]
    command += ["--key", "robot.key", "--passphrase-file"]
    ps.Key.generate("robot").save("robot.key", passphrase=None)
    signed = subprocess.run([*command, "-"], input="ignored", capture_output=True, text=True)
    assert signed.returncode == 0, signed.stderr
    with open("pass") as stream:
        assert (
            run("key", "sign", "study.json", "--key", "designer.key", "--force",
                "--passphrase-file", f"/dev/fd/{stream.fileno()}").exit_code == 0
        )  # fmt: skip
    from click.testing import CliRunner

    from privsketch.cli.main import main

    arguments = [
        "key",
        "sign",
        "study.json",
        "--key",
        "designer.key",
        "--force",
        "--passphrase-file",
        "-",
    ]
    for text, code in ((PASSPHRASE + "\r\n", 0), ("something else\n", None)):
        result = CliRunner().invoke(main, arguments, input=text)
        assert (result.exit_code == 0) == (code == 0), result.output
        assert text.strip() not in result.output


def on_terminal(command, *lines):
    """What a command shows on a terminal on which these lines are typed."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "privsketch.cli.main", *command])
    shown = b""
    waiting = list(lines)
    while True:
        if not select.select([terminal], [], [], 60)[0]:  # it waits for something else
            os.kill(pid, signal.SIGKILL)
            break
        try:
            read = os.read(terminal, 4096)
        except OSError:  # the other end is closed
            break
        shown += read
        # Whatever is typed before a prompt is thrown away.
        if waiting and shown.endswith(b": "):
            os.write(terminal, waiting.pop(0).encode() + b"\n")
            shown += b"(typed)"
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()


@pytest.mark.slow
def test_a_terminal_is_asked_twice_and_shows_nothing(folder):
    code, shown = on_terminal(["key", "make", "h3.key"], "a secret of mine", "a secret of mine")
    assert code == 0, shown
    assert "Passphrase of h3.key" in shown
    assert "Repeat" in shown
    assert "a secret" not in shown
    assert ps.Key.load("h3.key", passphrase="a secret of mine").name == "h3"


# ---------------------------------------------------------------- sign


def test_sign(study, folder):
    succeeded("sketch", "study.json", "data-1.csv", "-o", "plain.sketch")
    told = answer("key", "sign", "plain.sketch", "--key", "site-1.key")
    assert (told["kind"], told["signer"]["name"]) == ("sketch", "site-1")
    assert told["signature_file"] == "plain.sketch.sig"
    answer("key", "verify", "plain.sketch", "--trust", "site-1.pub")
    failed(folder, "key", "sign", "plain.sketch", "--key", "site-2.key", words="--force", code=DATA)
    succeeded("key", "sign", "plain.sketch", "--key", "site-2.key", "--force")
    answer("key", "verify", "plain.sketch", "--trust", "site-1.pub", code=5)


def test_sign_refuses(study, folder):
    for file in ("data-1.csv", "designer.pub", "designer.key", "study.json.sig"):
        failed(folder, "key", "sign", file, "--key", "site-1.key", words=file, code=INTEGRITY)
    failed(folder, "key", "sign", "missing", "--key", "site-1.key", words="missing", code=DATA)
    failed(
        folder, "key", "sign", "study.json", "--key", "none.key", "--force", words="none", code=DATA
    )
    (folder / "pass").write_text("not the one\n")
    words = "site-1.key: wrong passphrase or damaged file"
    signing = ("key", "sign", "study.json", "--key", "site-1.key", "--force")
    told = failed(folder, *signing, words=words, code=INTEGRITY)
    assert "not the one" not in told.output
    (folder / "site-1.key").chmod(0o644)
    failed(folder, *signing, words="chmod 600", code=INTEGRITY)


# ---------------------------------------------------------------- sketch


@pytest.mark.mostly_slow(quick_every=3)
@pytest.mark.parametrize("why", ["passphrase", "mode", "no key", "output"])
def test_the_key_is_opened_before_a_record_is_read(study, folder, spent, why):
    (folder / "data-1.csv").write_text("a,b,c\nnot,a,number\n")
    more = {"passphrase": [], "mode": [], "no key": ["--key", "missing.key"], "output": ["-o", "-"]}
    if why == "passphrase":
        (folder / "pass").write_text("not the one\n")
    if why == "mode":
        (folder / "site-1.key").chmod(0o640)
    words = {
        "passphrase": "wrong passphrase",
        "mode": "chmod 600",
        "no key": "missing.key",
        "output": "beside a file",
    }
    arguments = ("sketch", "study.json", "data-1.csv", "-o", "s1.sketch", "--key", "site-1.key")
    told = failed(folder, *arguments, *more[why], words=words[why])
    assert "nothing was spent" in told.stderr
    assert not spent


@pytest.mark.mostly_slow(quick_every=3)
@pytest.mark.parametrize("why", ["unsigned", "altered", "stranger", "resigned", "other key"])
def test_a_design_that_was_not_signed_is_refused(study, folder, spent, why):
    wanted = "designer.pub"
    if why == "unsigned":
        (folder / "study.json.sig").unlink()
    if why == "altered":  # a design that is whole by itself, and asks for more
        arguments = [9 if word == 1 else word for word in DESIGN]
        signature = (folder / "study.json.sig").read_bytes()
        succeeded(*arguments, "--force")
        (folder / "study.json.sig").write_bytes(signature)
        assert ps.Design.load("study.json").budget.epsilon == 9
    if why == "stranger":
        succeeded("key", "sign", "study.json", "--key", "site-2.key", "--force")
    if why == "resigned":  # by a key of the same name
        (folder / "evil").mkdir()
        succeeded("key", "make", "evil/designer.key")
        succeeded("key", "sign", "study.json", "--key", "evil/designer.key", "--force")
    if why == "other key":
        wanted = "site-2.pub"
    for more in ([], ["--dry-run"]):
        told = failed(
            folder, "sketch", "study.json", "data-1.csv", "-o", "s1.sketch", "--signed-by", wanted,
            *more, words="study.json",
        )  # fmt: skip
        assert "nothing was spent" in told.stderr
    assert not spent


def test_several_designers(study):
    made = sketch(1, "--signed-by", "site-2.pub", "--signed-by", "designer.pub")
    assert made.exit_code == 0, made.output


def test_a_signature_of_what_was_replaced_is_gone(study, folder):
    """Beside the new file it would look like tampering."""
    failed(folder, *DESIGN, words="exists")
    succeeded(*DESIGN, "--force")
    assert not (folder / "study.json.sig").exists()
    succeeded("key", "sign", "study.json", "--key", "designer.key")
    (folder / "study.json").unlink()
    failed(folder, *DESIGN, words="study.json.sig exists")


def test_a_place_for_the_signature_is_looked_for_before_anything_is_spent(study, folder, spent):
    start = ["sketch", "study.json", "data-1.csv", "--key", "site-1.key", "--force", "-o"]
    failed(folder, *start, "x" * 253, words="too long")
    (folder / "s1.sketch.sig").mkdir()
    failed(folder, *start, "s1.sketch", words="s1.sketch.sig: is a folder")
    failed(folder, *start[:3], *start[5:], "s1.sketch", words="s1.sketch.sig: is a folder")
    assert not spent


@pytest.mark.slow
def test_nobody_needs_the_library_who_signs_nothing(study, folder):
    """A signature may lie beside a design, too."""
    code = (
        "import sys; sys.modules['cryptography'] = None; sys.argv[0] = 'privsketch'\n"
        "from privsketch.cli.main import main; main()"
    )
    sketched = ["sketch", "study.json", "data-1.csv", "-o", "s1.sketch"]
    done = subprocess.run([sys.executable, "-c", code, *sketched], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    signed = ["key", "sign", "s1.sketch", "--key", "site-1.key"]
    done = subprocess.run([sys.executable, "-c", code, *signed], capture_output=True, text=True)
    assert "privsketch[signing]" in done.stderr


def test_a_signature_that_cannot_be_written_denies_nothing(study, folder, monkeypatch):
    """The sketch is there, and its budget is spent."""
    from privsketch import FileError

    def full(self, path):
        raise FileError(f"{path}: No space left on device")

    seams.set(monkeypatch, "signature.Signature.save", full)
    made = sketch(1)
    assert made.exit_code not in (0, 1)
    assert "s1.sketch was written before that: the budget counts as spent" in made.stderr
    assert (folder / "s1.sketch").exists()


# ---------------------------------------------------------------- inspect


def test_what_is_told_was_checked(study, folder, monkeypatch):
    """A file that is exchanged after its signature was found right is not shown as signed."""
    from privsketch.cli.shell import signing

    succeeded("key", "trust", "designer.pub")
    before = succeeded("inspect", "study.json")
    checked = signing.checked_bytes

    def exchanged(path, *more):
        found = checked(path, *more)
        succeeded(*[9 if word == 1 else word for word in DESIGN], "--force")
        return found

    seams.set(monkeypatch, "signing.checked_bytes", exchanged)
    told = succeeded("inspect", "study.json")
    assert "signed by   designer" in told.stderr
    assert told.stdout == before.stdout
    assert ps.Design.load("study.json").budget.epsilon == 9


# ---------------------------------------------------------------- merge


MERGE = ("merge", "s1.sketch", "s2.sketch", "-o", "all.sketch")


@pytest.mark.mostly_slow(quick_every=3)
@pytest.mark.parametrize("why", ["unsigned", "altered", "stranger"])
def test_sketches_that_were_not_signed_are_refused(study, folder, why):
    sketch(1)
    sketch(2)
    trusted = ["--signed-by", "site-1.pub", "--signed-by", "site-2.pub"]
    if why == "unsigned":
        (folder / "s2.sketch.sig").unlink()
    if why == "altered":  # the sketch of another run, whole by itself
        succeeded("sketch", "study.json", "data-2.csv", "-o", "s2b.sketch", "--source", "site-2")
        os.replace("s2b.sketch", "s2.sketch")
    if why == "stranger":
        trusted = trusted[:2]
    failed(folder, *MERGE, *trusted, words="s2.sketch")
    assert run(*MERGE).exit_code == 0  # as ever, for those who ask for nothing


def test_a_release_in_the_name_of_another_site_is_refused(study, folder):
    sketch(1)
    assert sketch(2, "--source", "site-1", "--force").exit_code == 0
    assert sketch(1, "--source", "site-2", "--force").exit_code == 0
    trusted = ["--signed-by", "site-1.pub", "--signed-by", "site-2.pub"]
    failed(folder, *MERGE, *trusted, words="signed by 'site-1', but its source is named 'site-2'")


def test_a_site_that_is_only_pinned_is_not_signed_for_by_others(study, folder):
    """Whoever asks for the signature of one site knows the names of the others all the same."""
    sketch(1, "--source", "site-2")
    one = ("merge", "s1.sketch", "-o", "all.sketch", "--signed-by", "site-1.pub")
    told = succeeded(*one, "--force").stderr
    assert "s1.sketch is signed by site-1, and its source is named site-2" in told
    succeeded("key", "trust", "site-2.pub")
    failed(folder, *one, "--force", words="but its source is named 'site-2', as another key")


@pytest.mark.parametrize("source", ["Site-1", "site\N{NON-BREAKING HYPHEN}1", "site-1 "])
def test_a_name_that_reads_like_that_of_another_site_is_refused(study, folder, source):
    sketch(1)
    assert sketch(2, "--source", source).exit_code == 0
    trusted = ["--signed-by", "site-1.pub", "--signed-by", "site-2.pub"]
    failed(folder, *MERGE, *trusted, words="as another key that is trusted here")


def test_who_signs_a_sum_also_for_others_is_told(study):
    """Else a site could hide what it says in the name of another in a sum of its own."""
    sketch(2)
    sketch(2, "-o", "forged.sketch", "--source", "site-1")
    succeeded("merge", "s2.sketch", "forged.sketch", "-o", "sum.sketch")
    succeeded("key", "sign", "sum.sketch", "--key", "site-2.key")
    trusted = ["--signed-by", "site-1.pub", "--signed-by", "site-2.pub"]
    told = succeeded("merge", "sum.sketch", "-o", "all.sketch", *trusted)
    assert "sum.sketch is a sum that site-2 has signed, also for site-1" in told.stderr


def test_other_names_and_two_sketches_of_one_signer_are_told(study):
    sketch(1, "--source", "ward A")
    sketch(2, "--source", "ward B", key="site-1.key")
    told = succeeded(*MERGE, "--signed-by", "site-1.pub")
    assert "s1.sketch is signed by site-1, and its source is named ward A" in told.stderr
    assert "site-1 has signed 2 of these sketches" in told.stderr


def test_a_collector_signs_for_all(study):
    sketch(1)
    sketch(2)
    succeeded(*MERGE)
    succeeded("key", "make", "collector.key")
    succeeded("key", "sign", "all.sketch", "--key", "collector.key")
    for name in ("collector", "site-1", "site-2"):
        succeeded("key", "trust", f"{name}.pub")
    signed = ("--signed-by", "collector")
    assert succeeded("merge", "all.sketch", "-o", "again.sketch", *signed).stderr == ""


# ---------------------------------------------------------------- trust


def test_trust(study, home):
    key = ps.PublicKey.load("designer.pub")
    told = answer("key", "trust", "designer.pub", "--expect", digit_groups(key.fingerprint))
    assert told["pinned"] == {"name": "designer", "fingerprint": key.fingerprint}
    assert told["folder"] == str(home / "trusted")
    assert answer("key", "trust", "--list")["keys"] == [told["pinned"]]
    assert digit_groups(key.fingerprint) in succeeded("key", "trust", "--list").stdout
    for name in ("designer", key.fingerprint, digit_groups(key.fingerprint)):
        answer("key", "verify", "study.json", "--trust", name)
        assert sketch(1, "--signed-by", name, "--force").exit_code == 0
    answer("key", "verify", "study.json")  # all pinned keys
    assert answer("key", "trust", "--forget", "designer")["forgotten"] == told["pinned"]
    assert answer("key", "trust", "--list")["keys"] == []


def test_trust_refuses(study, folder):
    succeeded("key", "trust", "designer.pub")
    (folder / "evil").mkdir()
    succeeded("key", "make", "evil/designer.key")
    digits = ps.PublicKey.load("site-1.pub").fingerprint
    for arguments, words in (
        (["evil/designer.pub"], "another key is pinned as 'designer'"),
        (["site-1.pub", "--expect", digits[:31]], "its fingerprint is"),
        (["site-1.pub", "--expect", "0" * 32], "its fingerprint is"),
        (["site-1.key"], "not a privsketch public-key file"),
    ):
        failed(folder, "key", "trust", *arguments, words=words, code=INTEGRITY)
    for arguments, words in (
        (["--forget", "nobody"], "no key is pinned"),
        ([], "give one of"),
        (["site-1.pub", "--list"], "give one of"),
        (["--list", "--expect", digits], "--expect goes with"),
    ):
        failed(folder, "key", "trust", *arguments, words=words, code=USAGE)
    failed(folder, "key", "trust", "none.pub", words="none.pub", code=DATA)
    assert [key.name for key in pinned_keys()] == ["designer"]


def test_who_trusts_nobody_cannot_verify(study, folder):
    failed(folder, "key", "verify", "study.json", words="no key is trusted", code=USAGE)


@pytest.mark.mostly_slow(quick_every=3)
@pytest.mark.parametrize("command", ["sketch", "check", "inspect"])
def test_once_a_key_is_pinned_signatures_of_designs_are_looked_at(study, folder, command):
    arguments = {
        "sketch": ["sketch", "study.json", "data-1.csv", "--dry-run"],
        "check": ["check", "study.json", "data-1.csv"],
        "inspect": ["inspect", "study.json"],
    }[command]
    whole = (folder / "study.json.sig").read_bytes()
    altered = whole.replace(b'"signature": "', b'"signature": "0', 1)
    (folder / "study.json.sig").write_bytes(altered)
    succeeded(*arguments)  # nobody said whom they trust
    succeeded("key", "trust", "site-1.pub")
    failed(folder, *arguments, words="study.json.sig")
    (folder / "study.json.sig").write_bytes(whole)
    told = succeeded(*arguments)
    lines = [line for line in told.stderr.splitlines() if "signed by" in line]
    assert len(lines) == 1
    assert "a key that is not pinned" in lines[0]
    succeeded("key", "trust", "designer.pub")
    assert "not pinned" not in succeeded(*arguments).stderr


def test_once_a_key_is_pinned_signatures_of_sketches_are_looked_at(study, folder):
    sketch(1)
    succeeded("key", "trust", "site-1.pub")
    data = (folder / "study.json.sig").read_bytes()
    (folder / "s1.sketch.sig").write_bytes(data)  # of something else
    learn = ("learn", "s1.sketch", "-k", 1, "--n-init", 1)
    failed(folder, *learn, words="signed as a design, not as a sketch")
    failed(folder, "merge", "s1.sketch", "-o", "all.sketch", words="not as a sketch")
    (folder / "s1.sketch.sig").unlink()
    succeeded("merge", "s1.sketch", "-o", "all.sketch")
