"""The wheel and the sdist as users get them: built, installed where nothing else is, and run.

The wheel is built from the sdist, so that what installs has been through both.

    python tests/check_wheel.py           this Python
    python tests/check_wheel.py --all     every Python from 3.11 on that is there

The demo must pass in an environment that has nothing but the package and what it asks for. Sizes
and import times are printed.
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
FIRST_ESTIMATOR = (
    "import time; start = time.perf_counter(); import privsketch as ps; ps.PrivateKMeans;"
    "print(f'{time.perf_counter() - start:.2f} s')"
)


def run(*command: object, **options: object) -> str:
    """What a command prints; its errors end this program."""
    # Nothing of the checkout may be found by accident.
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, env=clean, **options)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stdout}\n{done.stderr}")
    return done.stdout.strip()


def built(folder: Path) -> tuple[Path, Path]:
    """Wheel and sdist of the checkout."""
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def require_contents(wheel: Path, sdist: Path) -> None:
    """Code and its marker of types in the wheel and nothing else; tests in the sdist."""
    names = zipfile.ZipFile(wheel).namelist()
    strange = [n for n in names if not n.startswith("privsketch") or n.endswith((".pyc", ".png"))]
    templates = "privsketch/pages/report/templates"
    needed = {"privsketch/py.typed", f"{templates}/style.css", f"{templates}/page.html"}
    if strange or not needed <= set(names):
        sys.exit(f"{wheel.name}: {strange or f'{needed - set(names)} missing'}")
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    missing = {"pyproject.toml", "README.md", "LICENSE", "tests/conftest.py"} - inside
    if missing:
        sys.exit(f"{sdist.name}: {', '.join(sorted(missing))} missing")


def installed(python: str, archive: Path, folder: Path) -> str:
    """Install an archive in an empty environment and run the demo there."""
    run(python, "-m", "venv", folder)
    pip = (folder / "bin" / "python", "-m", "pip", "install", "--quiet")
    run(*pip, "--disable-pip-version-check", "-c", ROOT / "constraints.txt", f"{archive}[plot]")
    run(folder / "bin" / "privsketch", "demo", "--output", folder / "demo", cwd=folder)
    if not (folder / "demo" / "report.html").is_file():
        sys.exit(f"{archive.name}: the demo wrote no report")
    run(folder / "bin" / "python", "-c", FIRST_ESTIMATOR, cwd=folder)  # compiles what is imported
    return run(folder / "bin" / "python", "-c", FIRST_ESTIMATOR, cwd=folder)


def main() -> None:
    """Build, look inside, install and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--all", action="store_true", help="every Python from 3.11 on")
    given = parser.parse_args()
    found = [name for name in PYTHONS if shutil.which(name) and _runs(name)]
    pythons = found if given.all else [sys.executable]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel, sdist = built(folder / "dist")
        require_contents(wheel, sdist)
        print(f"{wheel.name} {wheel.stat().st_size / 1e3:.0f} kB, {sdist.name}")
        for number, python in enumerate(pythons):
            seconds = installed(python, wheel, folder / str(number))
            version = run(python, "-c", "import platform; print(platform.python_version())")
            print(f"Python {version}: the demo passes, the first estimator takes {seconds}")


def _runs(python: str) -> bool:
    return subprocess.run([python, "-c", ""], capture_output=True).returncode == 0


if __name__ == "__main__":
    main()
