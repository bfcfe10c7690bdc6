"""Whose client each one is, in a simulated run: what is refused, recorded and erased."""

import json
from pathlib import Path

import pytest

from covey import ConfigError, RunError, load, resume, run, verify
from covey.base.events import ClusterWaited, OrganisationsAttested
from covey.ledger.store import Ledger
from covey.runtime.folder import RunFolder
from covey.runtime.planning import client_plans
from recorded import facts

NAMES = tuple(f"client-{i:05}" for i in range(12))
SYBILS = NAMES[:4]
WHOSE = {n: "one & only" if n in SYBILS else f"org {n[-2:]}" for n in NAMES}


@pytest.fixture
def hidden(settings, tmp_path):
    def made(whose=None, **merge):
        path = tmp_path / "organisations.csv"
        if whose is not None:
            written(path, whose)
        hiding = {"name": "anonymity-sets", "min_anonymity": 4}
        return settings(
            rounds=3,
            method={"name": "fedavg"},
            population={
                "clients": 12,
                "audit_examples": 0,
                "organisations": str(path) if whose is not None else "",
            },
            risk={"every": 2, "name": "none"},
            aggregation={**hiding, "deniability_threshold": 2, **merge},
        )

    return made


def written(path: Path, whose: dict[str, str]) -> None:
    rows = [f"{name}, {each}" for name, each in whose.items()]
    path.write_text("\n".join(["name, organisation", *rows]))


@pytest.mark.slow
def test_sets_are_of_three_organisations_denials_count_them_and_are_proved(hidden, tmp_path):
    out = tmp_path / "run"
    run(config=hidden(WHOSE, min_organisations=3), out=out)
    attested = facts(out, OrganisationsAttested)
    assert len(attested) == 3
    for numbers in (each for fact in attested for each in fact.organisations):
        assert len(set(numbers)) >= 3
    plans = client_plans(RunFolder.existing(out), NAMES[:-1])
    assert plans[0].options[0].possible  # two others of three organisations remain
    assert not all(each.options[0].possible for each in plans)  # beside those who left
    with Ledger.read(RunFolder(out).ledger) as ledger:
        names = ledger.names()
        assert {names[h]: o for h, o in ledger.organisations().items()} == WHOSE
        assert not any("org " in str(e) or "one &" in str(e) for e in ledger.replay())
    existing = RunFolder.existing(out)
    assert b"org 07" in existing.ledger_path.read_bytes()
    load(out).forget(NAMES[7], "deny")
    assert b"org 07" not in existing.ledger_path.read_bytes()  # it goes along
    assert b"org 08" in existing.ledger_path.read_bytes()
    (proof,) = existing.proofs.glob("*.json")
    assert verify(proof, out).valid
    rounds = json.loads(proof.read_text())["rounds"]
    assert len(rounds) == 3
    assert all(held["size_left"] >= 2 for held in rounds)


def test_what_is_unknown_or_too_few_is_refused(hidden, tmp_path):
    with pytest.raises(ConfigError, match=r"found no population\.organisations"):
        run(config=hidden(min_organisations=3), out=tmp_path / "run")
    some = {name: WHOSE[name] for name in NAMES[:-1]}
    with pytest.raises(ConfigError, match=f"says nothing of '{NAMES[-1]}'"):
        run(config=hidden(some, min_organisations=3), out=tmp_path / "run")
    with pytest.raises(ConfigError, match="as many organisations as there are, 1"):
        run(config=hidden(dict.fromkeys(NAMES, "x"), min_organisations=2), out=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"aggregation\.min_organisations = 2 is a setting of"):
        run(config=hidden(WHOSE, min_organisations=2, name="mean"), out=tmp_path / "run")


@pytest.mark.slow
def test_a_run_goes_on_with_the_organisations_that_it_began_with(hidden, tmp_path):
    out = tmp_path / "run"
    run(config=hidden(WHOSE, min_organisations=3), out=out)
    written(tmp_path / "organisations.csv", {**WHOSE, NAMES[0]: "another"})
    with pytest.raises(RunError, match="must be what began the run"):
        load(out).forget(NAMES[7], "retrain")
    written(tmp_path / "organisations.csv", WHOSE)
    assert resume(out).summary.rounds
    assert not facts(out, ClusterWaited)
