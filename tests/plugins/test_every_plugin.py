"""Every kind of a user's own component: recorded, resumed, replayed, and never swapped."""

import ast
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import covey
from covey.base.built_ins import BUILT_INS
from covey.base.own_code import source_hash
from covey.cli.app import main
from plugins.kinds import CASES, Case

PLUGINS = sorted(
    path
    for path in Path(__file__).parent.glob("*.py")
    if not path.name.startswith(("test_", "__init__", "kinds"))
)
LEAVER = 3
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@pytest.fixture(autouse=True)
def own_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], covey.Run]:
    """Play a case from its file, once; nobody may write into its folder."""
    base, found = tmp_path_factory.mktemp("whole"), dict[str, covey.Run]()

    def played(case: Case) -> covey.Run:
        if case.text not in found:
            number = len(found)
            config = covey.load_config(case.file(base / f"{number}.toml"))
            found[case.text] = covey.run(config=config, out=base / str(number))
        return found[case.text]

    return played


def leaver_of(run: covey.Run) -> str:
    return sorted(run.names)[LEAVER]


def test_every_kind_that_settings_name_is_here():
    # attacks are named when a run is audited: tests/runtime/test_own_estimator.py;
    # trackers and metrics change no run: tests/tracking, tests/runtime/test_own_metrics.py
    played = {each.kind for each in CASES.values()}
    assert played | {"attack", "metric", "tracker"} == set(BUILT_INS)


@pytest.mark.parametrize("path", PLUGINS, ids=lambda path: path.stem)
def test_a_plugin_is_one_short_file_of_public_names(path: Path):
    text = path.read_text()
    assert len(text.splitlines()) <= 60
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            private = [n.name for n in node.names if n.name.startswith("covey.")]
            assert private == []
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("covey"):
            assert node.module == "covey"
            assert {each.name for each in node.names} <= set(covey.__all__)
    used = set(re.findall(r"\bcovey\.([A-Za-z]\w*)", re.sub(r"from covey.*", "", text)))
    assert used <= set(covey.__all__)


@cases
def test_an_object_is_the_same_run_as_its_name(case: Case, whole, tmp_path: Path):
    named = whole(case)
    passed = covey.run(config=case.config(), out=tmp_path / "passed")
    assert passed.summary.model_hash == named.summary.model_hash
    assert passed.history == named.history
    written = (tmp_path / "passed" / "config.toml").read_text()
    assert written == (named.folder / "config.toml").read_text()


@cases
def test_name_options_and_source_are_on_record(case: Case, whole, tmp_path: Path):
    run = covey.load(shutil.copytree(whole(case).folder, tmp_path / "run"))
    used = run.history.components
    assert used is not None
    recorded = used.components[case.key]
    assert recorded["name"].startswith(f"plugins.{case.module}:")
    assert recorded["options"] == case.options
    module = importlib.import_module(f"plugins.{case.module}")
    own = getattr(module, recorded["name"].partition(":")[2])
    assert recorded["source"] == source_hash(own) != ""
    assert run.summary.components[case.key] == recorded


@pytest.mark.parametrize("name", ["algorithm", "server optimizer"])
def test_the_report_has_a_row_of_components(name: str, whole, tmp_path: Path):
    case = CASES[name]
    run = covey.load(shutil.copytree(whole(case).folder, tmp_path / "run"))
    page = run.report().read_text()
    row = page.partition("<dt>Components</dt>")[2].partition("<dt>")[0]
    assert f"{case.key}: <code>plugins.{case.module}:" in row
    assert "with beta = <code>0.5</code>" in row
    assert run.summary.components[case.key]["source"][:12] in row


def test_the_command_line_tells_components_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    file = CASES["algorithm"].file(tmp_path / "own.toml")
    words = ["covey", "run", str(file), "--out", str(tmp_path / "run"), "--json"]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr()
    assert not ended.value.code, told.err
    recorded = json.loads(told.out)["components"]["method.name"]
    assert recorded["name"] == "plugins.fedavgm:FedAvgM"
    assert recorded["options"] == {"beta": 0.5}


def stop_after(rounds: int) -> Callable[[object], None]:
    calls = iter(range(rounds))

    def observe(_: object) -> None:
        if next(calls, None) is None:  # the first call comes before the first round
            raise KeyboardInterrupt

    return observe


@cases
def test_it_goes_on_to_the_same_bits(case: Case, whole, tmp_path: Path):
    folder = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        covey.run(config=case.config(), out=folder, observe=stop_after(2))
    assert len(covey.load(folder).history.rounds) == 2
    assert covey.resume(folder).history == whole(case).history


KILLED = """
import os, signal, sys
import covey

file, folder, rounds = sys.argv[1:]
left = int(rounds)

def observe(_):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)

covey.run(config=covey.load_config(file), out=folder, observe=observe)
"""


@pytest.mark.slow
@cases
def test_a_killed_process_is_carried_on_to_the_same_bits(case: Case, whole, tmp_path: Path):
    file, folder = case.file(tmp_path / "own.toml"), tmp_path / "killed"
    child = subprocess.run(
        [sys.executable, "-c", KILLED, file, folder, "2"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr.decode()
    assert covey.resume(folder).history == whole(case).history


def with_a_thought(text: str, name: str) -> str:
    """Return a module in which a class or a function of this name says one line more."""
    (node,) = (n for n in ast.parse(text).body if getattr(n, "name", "") == name)
    lines = text.splitlines(keepends=True)
    end = (node.end_lineno or 1) - 1
    indent = lines[end][: len(lines[end]) - len(lines[end].lstrip())]
    lines.insert(end, f"{indent}# another thought\n")
    return "".join(lines)


@cases
def test_a_changed_source_is_refused(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    name = f"own_{case.module}"
    source = tmp_path / f"{name}.py"
    shutil.copy(Path(__file__).parent / f"{case.module}.py", source)
    monkeypatch.syspath_prepend(tmp_path)
    text = case.text.replace(f"plugins.{case.module}:", f"{name}:")
    config = covey.load_config(case.file(tmp_path / "own.toml", text))
    with pytest.raises(KeyboardInterrupt):
        covey.run(config=config, out=tmp_path / "run", observe=stop_after(1))
    before = source.read_text()
    own = case.settings(text)[case.key.partition(".")[0]]
    named = str(own).partition(f"{name}:")[2].partition("'")[0]
    source.write_text(with_a_thought(before, named))
    said = rf"source of {case.key} must be the one that began .*Put it back"
    with pytest.raises(covey.RunError, match=said):
        covey.resume(tmp_path / "run")
    source.write_text(f"{before}\n# another thought\n")
    assert covey.resume(tmp_path / "run").history.finished is not None
    monkeypatch.delitem(sys.modules, name)


@cases
def test_a_retraining_ends_where_a_run_without_the_client_ends(case: Case, whole, tmp_path: Path):
    met = covey.load(shutil.copytree(whole(case).folder, tmp_path / "met"))
    leaver = leaver_of(met)
    (done,) = met.forget(leaver, basis="erasure", answer="retrain")
    assert done.answered.option.answer == "retrain"
    settings = case.config().model_dump()
    settings["population"]["exclude"] = [leaver]
    never = covey.run(config=covey.Config.of(settings), out=tmp_path / "never")
    assert met.summary.model_hash == never.summary.model_hash
    assert covey.resume(tmp_path / "met").summary.accuracy == (never.summary.accuracy)
