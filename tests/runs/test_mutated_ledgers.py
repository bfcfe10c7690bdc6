"""Ledgers with one random change, sealed again, under a proof that follows from them."""

import random
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from covey.base.errors import CoveyError
from covey.ledger.chain import Record
from runs.lying import Forger, Liar, in_the_ledger

MUTATIONS = 100
"""Of each kind of run."""

FIGURES = {
    *("RoundMeasured", "RunFinished", "ClientExposed", "ClusterAudited", "FairnessMeasured"),
    *("ModelDiverged", "MetricMeasured", "RiskMeasured", "ModelAttacked", "ClusterAbandoned"),
}
"""Kinds of events that say what was measured."""

WORD = {
    ("RunStarted", "covey_version"),
    ("RunStarted", "data_hash"),
    ("RunStarted", "group_names"),
    ("RunStarted", "groups"),
    ("RunStarted", "notes"),
    ("RunStarted", "risk_thresholds"),
    ("AnonymitySetsFormed", "diameters"),
    ("AnonymitySetsFormed", "sets"),
    ("ModelsMerged", "model_hash"),
    ("HeadsSolved", "sums"),
    ("HeadsSolved", "pooling"),
    ("HeadsSolved", "regularisation"),
    ("ClientLeft", "data_hash"),
    ("ClientLeft", "subject"),
}
"""What rests on the operator's word: fields that no other event or setting contradicts."""


def changed(value: Any, draw: random.Random) -> Any:
    """Return another value of the same kind."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + draw.choice([-1, 1, 7])
        case str():
            return draw.choice(["0" * 64, "x", value[:-1] + "0"])
        case list() if value:
            at = draw.randrange(len(value))
            return draw.choice([value[:at] + value[at + 1 :], [*value, value[at]]])
        case dict() if value:
            key = draw.choice(sorted(value))
            rest = {k: v for k, v in value.items() if k != key}
            return draw.choice([rest, {**value, key: changed(value[key], draw)}])
        case None:
            return 1
        case _:
            return [1]


def mutation(draw: random.Random, done: list[tuple[str, str]]) -> Callable[[Liar], None]:
    """Return one change of a ledger, which says in `done` what it changed."""

    def lie(liar: Liar) -> None:
        records = draw.choice([some for _, some in liar.entries])
        at = draw.randrange(len(records))
        record, how = records[at], draw.choice(["drop", "twice", "field", "field", "field"])
        name = draw.choice(sorted(record.body))
        if how == "field":
            body = {**deepcopy(record.body), name: changed(record.body[name], draw)}
            records[at] = Record(record.round_index, record.kind, body)
        elif how == "twice":
            records.insert(at, record)
        else:
            del records[at]
            if not records:
                liar.entries.remove(next(e for e in liar.entries if not e[1]))
        done.append((record.kind, how if how != "field" else name))
        liar.signed = min(liar.signed, len(liar.entries))

    return lie


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["deny", "retrain", "stop,noisy", "roll_back,clusters", "subtract"]
)
def test_no_change_of_a_ledger_is_silent(left, kind, tmp_path):
    draw, silent = random.Random(kind), set[tuple[str, ...]]()  # noqa: S311 - seeded
    for i in range(MUTATIONS):
        place = tmp_path / str(i)
        place.mkdir()
        forger, done = Forger(left(kind), place), list[tuple[str, str]]()
        honest = forger.document
        try:
            in_the_ledger(mutation(draw, done))(forger)
        except (CoveyError, ValueError, TypeError, KeyError):
            continue  # it is no ledger of which a proof could be made
        (what,) = done
        if forger.shown().valid and what[0] not in FIGURES and what not in WORD:
            silent.add((*what, honest["answer"]))
    assert silent == set()
