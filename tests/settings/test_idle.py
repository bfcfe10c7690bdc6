"""A setting that is said to do nothing does nothing; and one that does is not said to."""

import json
from functools import cache
from typing import Any

import pytest

from covey import Config, Run, run
from covey.settings.load import flat, idle_settings

SMALL = {
    "rounds": 2,
    "population": {"clients": 8, "examples_per_client": 20, "audit_examples": 60},
    "model": {"name": "linear"},
    "risk": {"every": 1},
    "engine": {"name": "reference"},
}
SETS = {"aggregation": {"name": "anonymity-sets", "min_anonymity": 3}}
ONE_BATCH = {"method": {"same_batch": True}, "train": {"local_steps": 1}}
NO_SHIFT = {"population": {"shift": "none"}}
GROUPS = {
    "population": {
        "groups": [
            {"share": 0.5, "shift": [0, 1], "examples_per_client": 20},
            {"share": 0.5, "shift": [40, 50], "examples_per_client": 30},
        ]
    }
}
CASES = [
    (SETS, "aggregation.radius", 2.0, "'paper' and 'sound'"),
    ({"method": {"num_clusters": 1}}, "method.max_newcomers", 0.25, "leaves no client to move"),
    (ONE_BATCH, "method.select_examples", 3, "on the batch of the step"),
    ({"method": {"name": "local"}}, "population.risk_weight", 0.5, "choose by it"),
    ({"risk": {"name": "none"}}, "risk.every", 2, "measures nothing"),
    ({"train": {"local_steps": 3}}, "train.local_epochs", 4, "counts steps"),
    ({}, "population.pool", 50, "trains nothing on the server's images"),
    ({"stopping": {"target": 0.999}}, "stopping.patience", 2, "waits for no better figure"),
    ({}, "population.min_clients", 2, "nobody with a budget"),
    ({}, "privacy.delta", 1e-6, "nothing is promised"),
    ({}, "data.dir", "/nowhere", "reads no files"),
    (NO_SHIFT, "population.majority", [3, 4], "shifts nothing"),
    (GROUPS, "population.examples_per_client", 25, "population.groups"),
]
NAMES = [f"{case[1]}-{index}" for index, case in enumerate(CASES)]


def merged(*parts: dict[str, Any]) -> dict[str, Any]:
    """The parts on top of each other, section by section."""
    section: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            inner = isinstance(value, dict) and isinstance(section.get(name), dict)
            section[name] = {**section[name], **value} if inner else value
    return section


def changed(base: dict[str, Any], key: str, value: object) -> Config:
    section, name = key.split(".")
    return Config.of(merged(SMALL, base, {section: {name: value}}))


@pytest.mark.parametrize(("base", "key", "value", "why"), CASES, ids=NAMES)
def test_what_does_nothing_is_reported_with_its_reason(base, key, value, why):
    config = changed(base, key, value)
    idle = {setting.key: setting for setting in idle_settings(config)}
    assert why in idle[key].reason
    assert idle[key].sentence.startswith(f"{key} = {flat(config.model_dump())[key]!r}") or (
        isinstance(value, list)
    )


@pytest.fixture(scope="module")
def usual_run(tmp_path_factory):
    """Play what several cases start from once."""

    @cache
    def played(settings: str) -> Run:
        config = Config.of(json.loads(settings))
        return run(config=config, out=tmp_path_factory.mktemp("usual") / "run")

    return lambda base: played(json.dumps(merged(SMALL, base), sort_keys=True))


@pytest.mark.slow
@pytest.mark.parametrize(("base", "key", "value", "why"), CASES, ids=NAMES)
def test_what_is_said_to_do_nothing_changes_no_run(tmp_path, usual_run, base, key, value, why):
    usual, other = usual_run(base), run(config=changed(base, key, value), out=tmp_path / "other")
    assert usual.summary.model_hash == other.summary.model_hash, why
    assert usual.history.rounds == other.history.rounds


@pytest.mark.parametrize(
    ("base", "key", "value"),
    [
        (merged(SETS, {"aggregation": {"noise": "paper"}}), "aggregation.radius", 2.0),
        ({"method": {"selection": "plugins.cautious:Cautious"}}, "population.risk_weight", 0.5),
        ({**SETS, "risk": {"name": "none"}}, "risk.every", 2),
        ({"data": {"name": "mnist"}}, "data.dir", "/nowhere"),
        (NO_SHIFT, "population.minority_share", 0.3),
    ],
)
def test_what_does_something_is_not_reported(base, key, value):
    assert key not in {setting.key for setting in idle_settings(changed(base, key, value))}
