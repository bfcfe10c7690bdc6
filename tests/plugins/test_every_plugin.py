"""Every kind of a user's own component: recorded, resumed, replayed, and never swapped."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import covey
from covey.base.own_code import source_hash
from plugins.kinds import CASES, merged
from plugins.loss_generalized import GeneralizedCrossEntropy, generalized
from plugins.model_wide import TwoLayers
from plugins.optimizer_lion import Lion, LionSteps

HERE = Path(__file__).parent
QUICK = ("algorithm that sends tensors along", "risk estimator", "shift")
cases = pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=() if name in QUICK else pytest.mark.slow)
        for name, case in CASES.items()
    ],
)


@pytest.fixture(autouse=True)
def own_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def stop_after(rounds: int) -> Callable[[object], None]:
    calls = iter(range(rounds))

    def observe(_: object) -> None:
        if next(calls, None) is None:  # the first call comes before the first round
            raise KeyboardInterrupt

    return observe


@cases
def test_it_is_on_record_and_a_stopped_run_of_its_name_ends_as_one_of_the_object(case, tmp_path):
    whole = covey.run(config=covey.Config.of(case.settings()), out=tmp_path / "passed")
    used = whole.summary.components[case.key]
    assert used["name"] == f"{case.own.__module__}:{case.own.__name__}"
    assert used["options"] == case.options
    assert used["source"] == source_hash(case.own) != ""

    named, cut = covey.load_config(whole.folder / "config.toml"), tmp_path / "named"
    with pytest.raises(KeyboardInterrupt):
        covey.run(config=named, out=cut, observe=stop_after(1))
    assert len(covey.load(cut).history.rounds) == 1
    assert covey.resume(cut).history == whole.history


def with_a_thought(text: str, name: str) -> str:
    """Return a module whose class of this name says one line more."""
    head, tail = text.split(f"class {name}(")
    first, rest = tail.split("\n", 1)
    return f"{head}class {name}({first}\n    # another thought\n{rest}"


@pytest.mark.parametrize("name", ["algorithm", "model", "server optimizer"])
def test_a_changed_source_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    case = CASES[name]
    module = case.own.__module__.removeprefix("plugins.")
    source, text = tmp_path / f"own_{module}.py", (HERE / f"{module}.py").read_text()
    source.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    named = covey.Config.of(case.settings()).toml().replace(f"plugins.{module}:", f"own_{module}:")
    (tmp_path / "own.toml").write_text(named)
    config = covey.load_config(tmp_path / "own.toml")
    with pytest.raises(KeyboardInterrupt):
        covey.run(config=config, out=tmp_path / "run", observe=stop_after(1))
    source.write_text(with_a_thought(text, case.own.__name__))
    said = rf"source of {case.key} must be what began .*put it back"
    with pytest.raises(covey.RunError, match=said):
        covey.load(tmp_path / "run", trust_code=True).resume()
    source.write_text(f"{text}\n# another thought\n")
    done = covey.load(tmp_path / "run", trust_code=True).resume()
    assert done.history.finished is not None
    monkeypatch.delitem(sys.modules, f"own_{module}")


KILLED = """
import os, signal, sys
import covey

def observe(history):
    if len(history.rounds) == 1:
        os.kill(os.getpid(), signal.SIGKILL)

covey.run(config=covey.load_config(sys.argv[1]), out=sys.argv[2], observe=observe)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["algorithm that sends tensors along", "server optimizer"])
def test_a_killed_process_is_carried_on_to_the_same_bits(name: str, tmp_path: Path):
    file, folder = tmp_path / "own.toml", tmp_path / "killed"
    config = covey.Config.of(CASES[name].settings())
    file.write_text(config.toml())
    child = subprocess.run(
        [sys.executable, "-c", KILLED, file, folder],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr.decode()
    whole = covey.run(config=config, out=tmp_path / "whole")
    assert covey.resume(folder).history == whole.history


@pytest.mark.parametrize(
    "name",
    [
        "algorithm that sends tensors along",
        pytest.param("data source", marks=pytest.mark.slow),
        pytest.param("risk estimator", marks=pytest.mark.slow),
    ],
)
def test_a_retraining_ends_where_a_run_without_the_client_ends(name: str, tmp_path: Path):
    settings = CASES[name].settings()
    met = covey.run(config=covey.Config.of(settings), out=tmp_path / "met")
    leaver = sorted(met.names)[3]
    (done,) = met.forget(leaver, basis="erasure", answer="retrain")
    assert done.answered.option.answer == "retrain"
    without = merged(settings, {"population": {"exclude": [leaver]}})
    never = covey.run(config=covey.Config.of(without), out=tmp_path / "never")
    assert covey.load(met.folder).summary.model_hash == never.summary.model_hash


def test_functions_and_torchs_classes_are_what_the_components_of_them_are(tmp_path: Path):
    base = CASES["loss"].settings()
    functions = {
        "model": {"name": "plugins.model_wide:two_layers", "width": 24},
        "train": {"loss": generalized, "optimizer": LionSteps},
    }
    components = {
        "model": TwoLayers(width=24),
        "train": {"loss": GeneralizedCrossEntropy(), "optimizer": Lion()},
    }
    hashes = {
        covey.run(config=merged(base, parts), out=tmp_path / str(i)).summary.model_hash
        for i, parts in enumerate((functions, components))
    }
    assert len(hashes) == 1


class Greedy(covey.Partition):
    """Deals everybody the same cards."""

    def deal(self, source, cards, sizes, generator):
        return [cards[:size] for size in sizes]


def test_a_partition_that_deals_twice_is_refused(tmp_path: Path):
    settings = merged(CASES["partition"].settings(), {"population": {"partition": Greedy()}})
    with pytest.raises(covey.DataError, match="of the cards, none twice"):
        covey.run(config=settings, out=tmp_path / "run")
