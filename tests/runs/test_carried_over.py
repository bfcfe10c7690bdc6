"""Parts of a user's own that would carry a leaver over a replay, or that no denial may rest on."""

from pathlib import Path
from typing import Any

import pytest

from covey import RunError, run, verify
from covey.base.events import ComponentsUsed
from covey.base.own_code import UNKNOWN_SOURCE, source_hash
from covey.dp.releases import is_accounted_for
from support.runs import small

MODULE = """
import json, pathlib
import torch
from torch import nn
from covey import AggregationResult, Loss, Objective
from covey.aggregation.anonymity import AnonymitySets
from covey.aggregation.base import Aggregation, ClusterMeans

SEEN = []
FILE = pathlib.Path(__file__).with_suffix(".json")

class Plain(Loss):
    def losses(self, outputs, labels):
        return torch.nn.functional.cross_entropy(outputs, labels, reduction="none")

class Counting(Plain):
    def losses(self, outputs, labels):
        SEEN.append(1)
        return super().losses(outputs, labels) * (1 + len(SEEN) / 1000)

class Filing(Plain):
    def losses(self, outputs, labels):
        seen = json.loads(FILE.read_text()) if FILE.exists() else 0
        FILE.write_text(json.dumps(seen + 1))
        return super().losses(outputs, labels) * (1 + seen / 1000)

class Pull(Objective):
    elementwise = True

    def correction(self, weights, start, memory):
        SEEN.append(1)
        return [len(SEEN) * w / 1000 for w in weights]

class Slower(Aggregation):
    def begin(self, models, streams, federation):
        SEEN.append(1)
        return SlowerMeans(models)

class SlowerMeans(ClusterMeans):
    def result(self):
        share, pairs = 1 / (1 + len(SEEN)), zip(self.models, super().result().clusters)
        moved = [{k: m[k] + share * (v - m[k]) for k, v in n.items()} for m, n in pairs]
        return AggregationResult(tuple(moved))

def fading(inputs):
    SEEN.append(1)
    return inputs / (1 + len(SEEN) / 1000)

class Drifting(nn.Module):
    def __init__(self):
        super().__init__()
        self.flat, self.linear = nn.Flatten(), nn.Linear(64, 10)

    def forward(self, inputs):
        SEEN.append(1)
        return self.linear(self.flat(inputs)) * (1 + len(SEEN) / 1000)

class Sets(AnonymitySets):
    pass

class SoundSets(AnonymitySets):
    hides_members = True
"""
TINY = small(population={"clients": 8})
LEAVER = "client-00003"
CARRY: dict[str, dict[str, Any]] = {
    "a loss": {"train": {"loss": {"name": "owned:Counting"}}},
    "a file": {"train": {"loss": {"name": "owned:Filing"}}},
    "an objective": {"train": {"objective": {"name": "owned:Pull"}}},
    "an aggregation": {"aggregation": {"name": "owned:Slower"}},
    "an augmentation": {"data": {"augment": {"name": "owned:fading"}}},
    "a model": {"model": {"name": "owned:Drifting"}},
}
SETS = {"min_anonymity": 4, "deniability_threshold": 3}


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "parts"
    place.mkdir()
    (place / "owned.py").write_text(MODULE)
    monkeypatch.syspath_prepend(place)
    monkeypatch.delitem(__import__("sys").modules, "owned", raising=False)


@pytest.mark.parametrize("name", CARRY)
def test_a_part_that_carries_state_is_found_and_named_before_anything_is_done(name, tmp_path):
    (setting,) = CARRY[name]
    held = run(config=TINY | CARRY[name], out=tmp_path / "run")
    head = held.ledger_head
    with pytest.raises(RunError, match=rf"played twice .*\({setting}\.\w+ = 'owned:\w+'\)"):
        held.forget(LEAVER, "retrain")
    assert (held.ledger_head, LEAVER in held.names) == (head, True)
    assert [answer.answered.option.answer for answer in held.forget(LEAVER, "stop")] == ["stop"]


def test_a_part_that_keeps_nothing_is_named_in_the_proof_as_the_operators_word(tmp_path):
    held = run(config=TINY | {"train": {"loss": {"name": "owned:Plain"}}}, out=tmp_path / "run")
    (one,) = held.forget(LEAVER, "retrain")
    verification = verify(one.answered.proof, held.folder)
    assert verification.failed == ()
    assert "own_parts" in verification.operator
    page = one.answered.proof.with_suffix(".html").read_text()
    assert "train.loss was owned:Plain" in page


def test_sets_of_a_users_own_deny_nobody_unless_their_class_says_that_they_hide(tmp_path):
    config = TINY | {"aggregation": {"name": "owned:Sets", **SETS}}
    held = run(config=config, out=tmp_path / "silent")
    with pytest.raises(RunError, match="A denial needs a run that hides updates in anonymity sets"):
        held.forget(LEAVER, "deny")
    config = TINY | {"aggregation": {"name": "owned:SoundSets", **SETS}}
    held = run(config=config, out=tmp_path / "sound")
    (one,) = held.forget(LEAVER, "deny")
    assert verify(one.answered.proof, held.folder).failed == ()


def test_code_whose_source_is_in_no_file_is_not_taken_for_coveys():
    made: dict[str, Any] = {"__name__": "__main__"}
    exec("class Plain: pass", made)  # noqa: S102
    source = source_hash(made["Plain"])
    assert source == UNKNOWN_SOURCE
    used = {"train.loss": {"name": "python:Plain", "options": {}, "source": source}}
    assert not is_accounted_for(ComponentsUsed(used))  # then noise guarantees nothing
