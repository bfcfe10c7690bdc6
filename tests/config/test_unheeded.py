"""A setting that is said to do nothing does nothing; and one that does is not said to."""

from typing import Any

import pytest

from covey import Config, run
from covey.config.problems import settings
from covey.config.settings import flat
from covey.config.unheeded import unheeded, why_unheeded

SMALL = {
    "rounds": 3,
    "population": {"clients": 8, "examples_per_client": 20, "audit_examples": 60},
    "model": {"name": "mlp"},
    "redteam": {"every": 1},
    "engine": {"name": "reference"},
}
SETS = {"merge": {"name": "anonymity-sets", "min_anonymity": 3}}
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
    ({}, "merge.radius", 2.0, "anonymity-sets"),
    ({}, "merge.deniability_threshold", 2, "anonymity-sets"),
    ({}, "merge.noise", "paper", "anonymity-sets"),
    (SETS, "merge.radius", 2.0, "'paper' and 'sound'"),
    (SETS, "merge.delta", 1e-6, "'sound'"),
    ({}, "method.target_share", 0.25, "'priced' and 'rebalanced'"),
    ({"method": {"num_clusters": 1}}, "method.max_newcomers", 0.25, "leaves nobody to move"),
    ({"method": {"name": "fedavg"}}, "method.max_newcomers", 0.25, "one model"),
    ({"method": {"name": "fedavg"}}, "method.selection", "loss", "one model"),
    ({"method": {"name": "fedavg"}}, "method.num_clusters", 3, "one model"),
    ({"method": {"name": "local"}}, "method.risk_weight", 0.5, "model of its own"),
    ({"method": {"name": "isolated"}}, "method.select_on", "holdout", "by chance"),
    ({"method": {"name": "ifca"}}, "method.selection", "threshold", "losses alone"),
    ({"method": {"selection": "loss"}}, "method.risk_weight", 0.5, "'weighted'"),
    ({"redteam": {"source": "none"}}, "method.risk_weight", 0.5, "no risk to weigh"),
    ({"redteam": {"source": "none"}}, "redteam.every", 2, "measures nothing"),
    ({}, "redteam.shadows", 5, "redteam.source = 'shadow', found 'federated'"),
    ({}, "redteam.pool", 100, "'shadow'"),
    ({"train": {"local_steps": 3}}, "train.local_epochs", 4, "counts steps"),
    ({}, "privacy.delta", 1e-6, "nothing is promised"),
    ({}, "engine.workers", 2, "'auto', 'parallel', 'ray' and 'flower', found 'reference'"),
    ({}, "data.dir", "/nowhere", "reads no files"),
    ({}, "population.dirichlet_alpha", 0.1, "'dirichlet', found 'iid'"),
    (NO_SHIFT, "population.shift_per", "client", "shifts nothing"),
    (NO_SHIFT, "population.majority", [3, 4], "shifts nothing"),
    (GROUPS, "population.minority_share", 0.3, "population.groups"),
    (GROUPS, "population.examples_per_client", 25, "population.groups"),
    ({"method": {"name": "fedprox"}}, "method.num_clusters", 3, "one model"),
]
NAMES = [f"{case[1]}-{index}" for index, case in enumerate(CASES)]
QUICK = ("redteam.pool-17",)


def merged(*parts: dict[str, Any]) -> dict[str, Any]:
    """The parts on top of each other, section by section."""
    found: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            inner = isinstance(value, dict) and isinstance(found.get(name), dict)
            found[name] = {**found[name], **value} if inner else value
    return found


def changed(base: dict[str, Any], key: str, value: object) -> Config:
    section, name = key.split(".")
    return Config.of(merged(SMALL, base, {section: {name: value}}))


@pytest.mark.parametrize(("base", "key", "value", "why"), CASES, ids=NAMES)
def test_what_does_nothing_is_told_with_its_reason(base, key, value, why):
    config = changed(base, key, value)
    told = {each.key: each for each in unheeded(config)}
    assert why in told[key].reason
    assert told[key].told.startswith(f"{key} = {flat(config.model_dump())[key]!r}") or (
        isinstance(value, list)
    )


@pytest.mark.parametrize(
    ("base", "key", "value", "why"),
    [
        pytest.param(*case, id=name, marks=() if name in QUICK else pytest.mark.slow)
        for name, case in zip(NAMES, CASES, strict=True)
    ],
)
def test_what_is_told_to_do_nothing_changes_no_run(tmp_path, base, key, value, why):
    usual = run(config=Config.of(merged(SMALL, base)), out=tmp_path / "usual")
    other = run(config=changed(base, key, value), out=tmp_path / "other")
    assert usual.summary["model_hash"] == other.summary["model_hash"], why
    assert usual.history.rounds == other.history.rounds


@pytest.mark.parametrize(
    ("base", "key", "value"),
    [
        (merged(SETS, {"merge": {"noise": "paper"}}), "merge.radius", 2.0),
        (SETS, "merge.deniability_threshold", 2),
        ({"method": {"selection": "priced"}}, "method.target_share", 0.25),
        ({"method": {"selection": "my.own:rule"}}, "method.risk_weight", 0.5),
        ({"redteam": {"source": "shadow"}}, "redteam.shadows", 5),
        ({**SETS, "redteam": {"source": "none"}}, "redteam.every", 2),
        ({"engine": {"name": "parallel"}}, "engine.workers", 2),
        ({"data": {"name": "mnist"}}, "data.dir", "/nowhere"),
        ({"data": {"name": "npz"}}, "data.dir", "/nowhere"),
        ({"method": {"name": "isolated"}}, "method.num_clusters", 3),
        (NO_SHIFT, "population.minority_share", 0.3),
    ],
)
def test_what_does_something_is_not_told(base, key, value):
    assert key not in why_unheeded(changed(base, key, value))


def test_defaults_are_never_told_and_neither_is_the_method():
    assert unheeded(Config()) == ()
    for name in ("fedavg", "ifca", "isolated", "local"):
        assert unheeded(Config.of({"method": {"name": name}})) == ()


def test_clients_that_bring_their_own_examples_are_not_simulated():
    own = {"name": "npz"}
    config = Config.of({"data": own, "population": {"clients": 9, "shift": "none"}})
    keys = {each.key for each in unheeded(config)}
    assert keys == {"population.clients", "population.shift"}
    holdout = Config.of({"data": own, "population": {"holdout": 0.3}})
    assert unheeded(holdout) == ()


def test_every_key_of_the_table_is_a_setting():
    known = {each.key for each in settings()}
    for base, *_ in CASES:
        assert why_unheeded(Config.of(merged(SMALL, base))).keys() <= known
    assert why_unheeded(Config.of({"data": {"name": "npz"}})).keys() <= known
