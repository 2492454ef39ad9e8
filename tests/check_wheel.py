"""Both wheels as users get them: built, installed where nothing else is, and run.

A wheel is built from the sdist, so that what installs has been through both. First the library
alone, whose demo must pass and whose `study` command says what to install; then the studies.

    python tests/check_wheel.py           this Python
    python tests/check_wheel.py --all     every Python from 3.11 on that is there

Environments have nothing but the packages and what they ask for. Sizes and import times are
printed, scikit-learn's own beside ours.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("python3.11", "python3.12", "python3.13")
FOLDERS = {"privsketch": ROOT, "privsketch_studies": ROOT / "studies"}
# Files that are no code, and those that an sdist must have.
NEEDED = {
    "privsketch": {
        "py.typed",
        "__init__.pyi",
        "pages/report/templates/style.css",
        "pages/report/templates/page.html",
        "pages/schema/templates/form.html",
        "epsilon.md",
    },
    "privsketch_studies": {
        "py.typed",
        "__init__.pyi",
        "collector/pages/style.css",
        "collector/pages/templates/base.html",
    },
}
IMPORT_TIME = (
    "import time; start = time.perf_counter(); {}; print(f'{{time.perf_counter() - start:.2f}}')"
)
OURS = "import privsketch; privsketch.PrivateKMeans"
THEIRS = "from sklearn.cluster import KMeans"


def run(*command: object, **options: object) -> str:
    """What a command prints; its errors end this program."""
    # Nothing of the checkout may be found by accident.
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, env=clean, **options)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stdout}\n{done.stderr}")
    return done.stdout.strip()


def built(name: str, folder: Path) -> Path:
    """Build the wheel of a distribution from its sdist, and look into both."""
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, FOLDERS[name])
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    files = set(zipfile.ZipFile(wheel).namelist())
    strange = [
        file for file in files if not file.startswith(name) or file.endswith((".pyc", ".png"))
    ]
    missing = {f"{name}/{file}" for file in NEEDED[name]} - files
    with tarfile.open(sdist) as archive:
        inside = {file.partition("/")[2] for file in archive.getnames()}
    missing |= {"pyproject.toml", "README.md", "LICENSE"} - inside
    if strange or missing:
        sys.exit(f"{wheel.name}: strange {strange}, missing {missing}")
    print(f"{wheel.name} {wheel.stat().st_size / 1e3:.0f} kB")
    return wheel


def tried(python: str, wheels: dict[str, Path], folder: Path) -> None:
    """Install the library in an empty environment and use it, then the studies."""
    run(python, "-m", "venv", folder)
    ours, privsketch = folder / "bin" / "python", folder / "bin" / "privsketch"
    pip = (ours, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    constraints = ("-c", ROOT / "constraints.txt")
    run(*pip, *constraints, f"{wheels['privsketch']}[plot]")
    run(privsketch, "demo", "--output", folder / "demo", cwd=folder)
    if "Which to take" not in run(privsketch, "--explain", "epsilon", cwd=folder):
        sys.exit("the wheel has no page about epsilon")
    if not (folder / "demo" / "report.html").is_file():
        sys.exit("the demo wrote no report")
    alone = subprocess.run([privsketch, "study", "demo"], capture_output=True, text=True)
    if alone.returncode != 2 or "pip install privsketch-studies" not in alone.stderr:
        sys.exit(f"without the studies, `privsketch study` says {alone.stderr!r}")
    times = [run(ours, "-c", IMPORT_TIME.format(code), cwd=folder) for code in (OURS, THEIRS) * 2]
    version = run(ours, "-c", "import platform; print(platform.python_version())")
    print(f"Python {version}: the demo passes; {times[2]} s to PrivateKMeans, {times[3]} to KMeans")
    run(*pip, *constraints, wheels["privsketch_studies"])
    run(privsketch, "study", "demo", "--records", 300, "--output", folder / "study", cwd=folder)
    run(privsketch, "collector", "serve", "--check", cwd=folder)
    print("the demo of a sealed study passes, and a collector starts")


def main() -> None:
    """Build, look inside, install and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--all", action="store_true", help="every Python from 3.11 on")
    arguments = parser.parse_args()
    known = [name for name in PYTHONS if shutil.which(name) and _runs(name)]
    pythons = known if arguments.all else [sys.executable]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheels = {name: built(name, folder / name) for name in FOLDERS}
        for number, python in enumerate(pythons):
            tried(python, wheels, folder / str(number))


def _runs(python: str) -> bool:
    return subprocess.run([python, "-c", ""], capture_output=True).returncode == 0


if __name__ == "__main__":
    main()
