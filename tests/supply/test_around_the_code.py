"""What stands around the code: CI's workflow, hooks before a commit, a release's links."""

import re
import runpy
import shlex
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent.parent
RELEASE = runpy.run_path(str(ROOT / ".ci/release"))
HOME = "https://forge.example/covey"


def test_the_workflow_runs_every_part_of_ci():
    script = (ROOT / ".ci/run").read_text()
    parts = {line for line in script.splitlines() if re.match(r"make|\.ci/(?!stranger)", line)}
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    steps = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    run = {*jobs["pinned"]["strategy"]["matrix"]["command"], *steps}
    assert {*parts, "make demo", "make test"} <= run
    assert ".ci/stranger ${{ matrix.versions }} python3" in run
    assert {*jobs["stranger"]["strategy"]["matrix"]["versions"]} == {"newest", "lowest"}


def test_hooks_run_what_setup_installs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    installed = project["optional-dependencies"]["dev"]
    programs = {"lint-imports": "import-linter"}
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    for hook in local["hooks"]:
        program = shlex.split(hook["entry"])[0].removeprefix(".venv/bin/")
        assert programs.get(program, program) in installed


def test_a_release_leads_to_its_own_files():
    page = RELEASE["absolute"]((ROOT / "README.md").read_text(), HOME, "1.2.3")
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert all(link.startswith("https://") for link in links)
    ours = [link for link in links if link.startswith(HOME)]
    assert len(ours) > 5
    for link in ours:
        _, _, path = link.partition("/v1.2.3/")
        assert (ROOT / path.partition("#")[0]).exists()
    assert f"{HOME}/raw/v1.2.3/docs/results/backbone.svg" in ours


def test_a_release_names_its_addresses():
    text = (ROOT / "pyproject.toml").read_text()
    urls = tomllib.loads(RELEASE["with_addresses"](text, HOME, "1.2.3"))["project"]["urls"]
    assert urls["Issues"] == f"{HOME}/issues"
    assert urls.keys() > tomllib.loads(text)["project"]["urls"].keys()
