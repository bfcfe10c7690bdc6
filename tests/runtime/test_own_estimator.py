"""A user's own estimator of risk and attack: from a file, as an object, and on a client."""

from pathlib import Path
from typing import Any, ClassVar

import pytest

import covey
from covey.base.events import RiskMeasured, RiskUnknown
from plugins.attack_margin import Margin
from plugins.risk_confidence import ConfidenceGap

TINY = {
    "rounds": 3,
    "population.clients": 6,
    "population.examples_per_client": 25,
    "population.audit_examples": 40,
    "model.name": "mlp",
    "engine.name": "reference",
    "method.selection": "threshold",
    "method.initialisation": "random",
    "risk.every": 1,
}
NAME = "plugins.risk_confidence:ConfidenceGap"
TOML = f"""
rounds = 3
[population]
clients = 6
examples_per_client = 25
audit_examples = 40
[model]
name = "mlp"
[engine]
name = "reference"
[method]
selection = "threshold"
initialisation = "random"
[risk]
name = "{NAME}"
every = 1
sharpness = 2.0
"""


def measured(run: covey.Run) -> list[RiskMeasured]:
    return list(run.history.measured)


def test_from_a_file_and_as_an_object_it_finds_the_same(tmp_path: Path):
    file = tmp_path / "own.toml"
    file.write_text(TOML)
    named = covey.run(config=covey.load_config(file), out=tmp_path / "named")
    source = ConfidenceGap(sharpness=2.0)
    passed = covey.run(config=TINY | {"risk.name": source}, out=tmp_path / "passed")
    assert measured(named) == measured(passed)
    found = measured(named)
    assert {each.estimate.source for each in found} == {NAME}
    known = [each.estimate for each in found if each.estimate.counts]
    assert known
    assert known[0].reason == "a coin with sharpness 2"
    # clients choose by it: nothing is unknown of a cluster that was measured
    facts = [e for e in named.history.all_events if isinstance(e, (RiskMeasured, RiskUnknown))]
    assert isinstance(facts[0], RiskUnknown)
    assert sum(isinstance(each, RiskUnknown) for each in facts[1:]) < 3
    assert named.summary.model_hash == passed.summary.model_hash


def test_a_whole_section_is_the_object():
    config = covey.Config.of({"risk": ConfidenceGap(sharpness=3.0)})
    assert config.risk.name == NAME
    assert config.risk == ConfidenceGap(sharpness=3.0)
    assert "sharpness = 3.0" in config.toml()


class Wrong(covey.RiskEstimator):
    """Returns what its option says."""

    what: str = "nothing"
    on_clients: ClassVar[bool] = False

    def estimate(self, target: Any, context: Any, streams: Any) -> Any:
        if self.what == "raises":
            raise ValueError("no luck")
        return {
            "nothing": None,
            "nan": covey.RiskEstimate(covey.Figure(float("nan"), 0.1)),
            "far": covey.RiskEstimate(covey.Figure(1.5, 0.1)),
            "error": covey.RiskEstimate(covey.Figure(0.5, float("inf"))),
        }[self.what]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("nothing", "must return a covey.RiskEstimate.* found a NoneType"),
        ("nan", "found nan with 0.1"),
        ("far", "a risk from 0 to 1"),
        ("error", "found 0.5 with inf"),
        ("raises", "raised ValueError: no luck"),
    ],
)
def test_what_nobody_can_act_on_is_refused(tmp_path: Path, what: str, said: str):
    with pytest.raises(covey.ConfigError, match=said):
        covey.run(config=TINY | {"risk.name": Wrong(what=what)}, out=tmp_path / "run")


class OnClients(ConfidenceGap):
    """The same, which every client measures for itself."""

    on_clients: ClassVar[bool] = True


def test_clients_may_measure_with_it_and_tell_nobody(tmp_path: Path):
    config = TINY | {"population.examples_per_client": 80, "risk.name": OnClients(fewest=5)}
    run = covey.run(config=config, out=tmp_path / "run")
    assert measured(run) == []
    unknown = [isinstance(each, RiskUnknown) for each in run.history.all_events]
    assert sum(unknown) == 1  # before the first choice


class NeedsHoldout(ConfidenceGap):
    """The same, which says that it cannot do without held-out examples."""

    needs_holdout: ClassVar[bool] = True


def test_what_it_needs_is_compared_with_what_is_ruled_out(tmp_path: Path):
    config = TINY | {"population.holdout": 0.0, "risk.name": NeedsHoldout()}
    with pytest.raises(covey.ConfigError, match=r"NeedsHoldout' needs clients to hold"):
        covey.run(config=config, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("source", ["plugins.attack_margin:Margin", "math:sqrt"])
def test_something_else_is_no_estimator(tmp_path: Path, source: str):
    with pytest.raises(covey.ConfigError, match=r"RiskEstimator"):
        covey.run(config=TINY | {"risk.name": source}, out=tmp_path / "run")


def test_attacks_are_named_or_passed(tmp_path: Path):
    run = covey.run(config=TINY | {"train.local_epochs": 5}, out=tmp_path / "run")
    attacks = ["loss", "plugins.attack_margin:Margin", Margin(rank=2)]
    found = run.audit(attacks, references=2)
    assert all(each.reason == "" for each in found.clusters)
    names = {name for each in found.clusters for name in each.attacks}
    own = "plugins.attack_margin:Margin"
    assert names == {"loss", own, f"{own}(rank=2)"}
