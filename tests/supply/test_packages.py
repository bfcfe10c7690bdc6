"""What is installed exists, under known licences."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from supply.licences import all_needed, licence_of, page

ROOT = Path(__file__).parents[2]
BUILD = "import sys; from setuptools import build_meta as b; getattr(b, sys.argv[1])(sys.argv[2])"
INSTALLED = re.compile(r"""(?:pip|uv|pipx) install[^`\n#.,;]*?["' =]covey(?=[\[\s"'=<>~`.,]|$)""")
"""An installation of covey by its name, from whatever index a machine asks."""
TEXTS = {".py", ".md", ".toml", ".yaml", ".sh", ".html", ".jinja", ".service", ".cfg"}


@pytest.fixture(scope="session")
def built(once) -> Path:
    """A folder with the wheel and the source distribution of the files that git knows."""

    def build(folder: Path) -> None:
        listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True)
        for name in filter(os.path.isfile, names.stdout.splitlines()):
            (folder / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / "tree" / name)
        for what in ("build_sdist", "build_wheel"):
            words = [sys.executable, "-c", BUILD, what, str(folder)]
            subprocess.run(words, cwd=folder / "tree", capture_output=True, check=True)
        shutil.rmtree(folder / "tree")

    return once("built", build)


def test_an_installation_of_covey_by_its_name_is_recognised():
    for line in ('pip install "covey[flower]"', "pip install covey", "RUN pip install -q 'covey'"):
        assert INSTALLED.search(line), line
    for line in ("pip install .", 'pip install ".[ray]"', "pip install dist/covey-0.2.0-any.whl"):
        assert not INSTALLED.search(line), line


def test_nothing_installs_covey_by_its_name():
    """No index has such a project: who takes the name would run code on nodes."""
    texts = [*ROOT.glob("*.md"), ROOT / "Makefile", *ROOT.glob(".ci/*")]
    for folder in ("src", "docs", "examples", "benchmarks"):
        texts += [p for p in (ROOT / folder).rglob("*") if p.suffix in TEXTS or not p.suffix]
    named = [
        f"{path.relative_to(ROOT)}: {command[0]}"
        for path in texts
        if path.is_file() and "egg-info" not in str(path)
        for command in INSTALLED.finditer(path.read_text("utf-8", errors="ignore"))
    ]
    assert named == []


@pytest.mark.slow
def test_compose_builds_server_and_nodes_out_of_the_wheel(built, tmp_path):
    """Read, as no Docker is here: each file that is copied or installed is one that exists."""
    covey = [sys.executable, "-m", "covey", "deploy", "init", "c.toml", "--out", "fed"]
    (tmp_path / "c.toml").write_text("rounds = 1\n")
    subprocess.run([*covey, "--node", "a", "--node", "b"], cwd=tmp_path, check=True)
    services = yaml.safe_load((tmp_path / "fed" / "compose.yaml").read_text())["services"]
    contexts = {service["build"] for service in services.values()}
    assert contexts == {"image"}
    image = tmp_path / "fed" / "image"
    (wheel,) = built.glob("*.whl")
    shutil.copy(wheel, image)  # as the Dockerfile's first lines say
    lines = (image / "Dockerfile").read_text().splitlines()
    ((source, target),) = [line.split()[1:] for line in lines if line.startswith("COPY")]
    assert (image / source).is_file()
    (install,) = [line for line in lines if line.startswith("RUN")]
    (path, extra) = re.findall(r'"(\S+\.whl)\[(\w+)\]"', install)[0]
    assert path == f"{target}{wheel.name}"
    metadata = next(n for n in zipfile.ZipFile(wheel).namelist() if n.endswith("METADATA"))
    assert f"Provides-Extra: {extra}\n" in zipfile.ZipFile(wheel).read(metadata).decode()
    for service in services.values():  # what starts is in the folder, as it is mounted
        place = dict(volume.split(":") for volume in service["volumes"])
        (outside, inside), *_ = place.items()
        for word in service["command"]:
            assert Path(word.replace(inside, outside, 1)).is_file(), word
        assert {"key", "ca.key"} & {file.name for file in image.iterdir()} == set()


@pytest.mark.slow
def test_a_source_distribution_holds_its_tests_and_passes_ten_of_them(built, tmp_path):
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    for name in (
        "CHANGELOG.md",
        "constraints.txt",
        "docs/index.md",
        "tests/conftest.py",
        "LICENSE",
    ):
        assert (folder / name).is_file(), name
    words = [
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/base/test_rng.py",
        "tests/base/test_params.py",
    ]
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COVEY_CI": ""},
    )
    assert done.returncode == 0, done.stdout
    (passed,) = re.findall(r"^(\d+) passed", done.stdout, re.MULTILINE)
    assert int(passed) >= 10


def test_what_ci_plays_are_the_commands_that_the_readme_shows():
    shown = re.findall(r"^    ((?:make|pip|covey) .*?)\s+#", (ROOT / "README.md").read_text(), re.M)
    assert shown == ["make demo", "make test", "pip install .", "covey run"]


PIN = re.compile(r"^([\w.-]+)==([\w.+]+)", re.MULTILINE)
FREE = re.compile(r"Apache|MIT|BSD|PSF|Python Software Foundation|MPL|Mozilla|ISC|Zlib|GPL")


def pins(name: str) -> dict[str, str]:
    pinned = PIN.findall((ROOT / name).read_text())
    return {re.sub(r"[-_.]+", "-", name.lower()): version for name, version in pinned}


@pytest.mark.slow
def test_every_distribution_has_a_known_licence():
    assert [name for name in all_needed() if not FREE.search(licence_of(name))] == []


def test_no_copyleft_comes_with_a_plain_install():
    needed = all_needed()
    assert [n for n, extra in needed.items() if not extra and "GPL" in licence_of(n)] == []


def test_the_page_lists_what_is_installed():
    assert (ROOT / "LICENCES.md").read_text() == page()


def test_everything_that_is_needed_is_pinned():
    assert set(all_needed()) <= set(pins("constraints.txt"))


def test_the_pins_with_hashes_are_the_pins():
    hashed = pins("constraints.hashes.txt")
    assert {**hashed, "torch": pins("constraints.txt")["torch"]} == pins("constraints.txt")
