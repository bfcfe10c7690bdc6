"""A dishonest operator rewrites a ledger, seals it again, and signs what follows from it."""

import random
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from covey.base.errors import CoveyError
from covey.ledger.chain import Record
from runs.lying import Forger, Liar, in_the_ledger

Lie = Callable[[Liar], Any]
SOME_TIME = "2020-01-01T00:00:00.000+00:00"


# noise that the settings do not add


def noise(kind: str, **body: Any) -> Lie:
    """Record noise with every merge."""

    def lie(liar: Liar) -> None:
        for _, records in liar.entries:
            at = next((i for i, r in enumerate(records) if r.kind == "ModelsMerged"), None)
            if at is not None:
                records.insert(at, Record(records[at].round_index, kind, body))

    return lie


def in_every(kind: str, **changes: Any) -> Lie:
    """Change every event of a kind."""
    return lambda liar: [body.update(changes) for body in liar.of(kind)]


def without(kind: str) -> Lie:
    """Leave out every event of a kind."""
    return lambda liar: liar.drop(kind)


SUM = {"cluster": 0, "clip": 1.0, "noise_multiplier": 9.0, "sampling": 1.0, "unit": "client"}
SHARES = {"of": "updates", "cluster": 0, "clip": 1.0, "noise_multiplier": 9.0, "honest": 5}
SHARES |= {"unit": "client", "rounding": 0.0}
SETS = {"cluster": 0, "sizes": [8], "radius": 1.0, "noise_multiplier": 9.0}


def of_all(kind: str, **body: Any) -> Lie:
    """Record, of every client that trained, something with every merge."""

    def lie(liar: Liar) -> None:
        for _, records in liar.entries:
            for i, record in enumerate(records):
                if record.kind == "ModelsMerged":
                    (chosen,) = [r.body["clusters"] for r in records if r.kind == "ClientsAssigned"]
                    values = {
                        k: [*chosen]
                        if v is None
                        else dict.fromkeys(chosen, v)
                        if k in ("steps", "sampling", "exposures")
                        else v
                        for k, v in body.items()
                    }
                    records.insert(i, Record(record.round_index, kind, values))
                    break

    return lie


def fewer_steps(liar: Liar) -> None:
    """Batches out of a thousand times as many examples, in as many steps as before."""
    for body in liar.of("StepsPerturbed"):
        body["sampling"] = {h: q / 1_000 for h, q in body["sampling"].items()}


def as_coveys(liar: Liar) -> None:
    for body in liar.of("ComponentsUsed"):
        body["components"]["train.loss"]["source"] = ""


def unhashed(liar: Liar) -> None:
    for body in liar.of("ComponentsUsed"):
        del body["components"]["model.features"]["tensors"]


# who took part


def first_round(liar: Liar) -> list[Record]:
    return next(
        records for _, records in liar.entries if any(r.kind == "CohortSampled" for r in records)
    )


def in_first(liar: Liar, kind: str) -> dict[str, Any]:
    return next(r.body for r in first_round(liar) if r.kind == kind)


def small_set(liar: Liar) -> None:
    sets = in_first(liar, "AnonymitySetsFormed")["sets"]
    while len(sets[0]) > 3:
        sets[1].append(sets[0].pop())


def undrawn_member(liar: Liar) -> None:
    cohort = in_first(liar, "CohortSampled")["handles"]
    cohort.remove(next(h for h in cohort if h != liar.handle))


def untrained_member(liar: Liar) -> None:
    """A set of one cluster names a client of the other one."""
    formed = (
        [r.body["sets"] for r in records if r.kind == "AnonymitySetsFormed"]
        for _, records in liar.entries
    )
    one, other = next(sets for sets in formed if len(sets) == 2)
    one[0][0] = other[0][0]


def member_of_two_sets(liar: Liar) -> None:
    sets = in_first(liar, "AnonymitySetsFormed")["sets"]
    sets[0].append(sets[1][0])


def in_no_set(liar: Liar) -> None:
    """It trained, and "its update was used with probability 0"."""
    for body in liar.of("AnonymitySetsFormed"):
        members = [h for own in body["sets"] for h in own if h != liar.handle]
        body |= {"sets": [sorted(members)], "diameters": body["diameters"][:1]}


def never_trained(liar: Liar) -> None:
    in_no_set(liar)
    for body in liar.of("ClientsAssigned"):
        body["clusters"].pop(liar.handle, None)
    for body in liar.of("ModelsMerged"):
        body["participants"] = [7]


def never_drawn(liar: Liar) -> None:
    never_trained(liar)
    for body in liar.of("CohortSampled"):
        if liar.handle in body["handles"]:
            body["handles"].remove(liar.handle)


def another_partition(liar: Liar) -> None:
    sets = in_first(liar, "AnonymitySetsFormed")["sets"]
    sets[0][0], sets[1][0] = sets[1][0], sets[0][0]


def fewer_merged(liar: Liar) -> None:
    in_first(liar, "ModelsMerged")["participants"] = [6]


def waits_twice(liar: Liar) -> None:
    for _, records in liar.entries:
        if waited := [r for r in records if r.kind == "ClusterWaited"]:
            records.insert(records.index(waited[0]), waited[0])


def joined(liar: Liar) -> None:
    records = next(records for _, records in liar.entries if records[0].round_index == 1)
    records.insert(0, Record(1, "ClientsJoined", {"handles": ["stranger"]}))


def chooses_twice(liar: Liar) -> None:
    records = first_round(liar)
    at = next(i for i, r in enumerate(records) if r.kind == "ClientsAssigned")
    records.insert(at, records[at])


# answers and replays


def lowered(liar: Liar) -> None:
    """A threshold that is lowered once the request is there."""
    change = Record(None, "ThresholdChanged", {"deniability_threshold": 2})
    liar.entries.insert(liar.answer, (liar.entries[liar.answer][0], [change]))
    liar.signed += 1


def merging_nothing(liar: Liar) -> None:
    for _, records in liar.rounds(again=True):
        records[:] = [r for r in records if r.kind != "ModelsMerged"]


def later_start(liar: Liar) -> None:
    (body,) = liar.of("RunRolledBack")
    body["round_index"] = 1
    liar.replay(liar.rounds(again=True)[1:])


def ends_in_between(liar: Liar) -> None:
    """Fewer rounds are played again than were taken back."""
    *rounds, _ = liar.rounds(again=True)
    liar.replay(rounds)
    liar.add(Record(2, "RunFinished", finished(liar)))
    liar.signed += 1


def finished(liar: Liar) -> dict[str, Any]:
    *_, body = liar.of("RunFinished")
    return body


def back_to_the_old_model(liar: Liar) -> None:
    """After the proof, the rounds from before the answer are played back."""
    before = liar.rounds(again=False)
    liar.add(Record(None, "RunRolledBack", {"round_index": 0, "until": 3, "how": "anew"}))
    for when, records in before:
        liar.add(*records, when=when)


def the_old_model_at_the_end(liar: Liar) -> None:
    old = next(iter(liar.of("RunFinished")))["model_hash"]
    for body in liar.of("RunFinished", after=True):
        body["model_hash"] = old


def other_choices(liar: Liar) -> None:
    """Others change their clusters in a replay "as recorded"."""
    for _, records in liar.rounds(again=True):
        (chosen,) = [r.body["clusters"] for r in records if r.kind == "ClientsAssigned"]
        (merged,) = [r.body for r in records if r.kind == "ModelsMerged"]
        kinds = ("AnonymitySetsFormed", "ClusterWaited")
        sets = [r for r in records if r.kind in kinds]
        for handle in chosen:
            chosen[handle] = 1 - chosen[handle]
        merged["participants"].reverse()
        for record in sets:
            record.body["cluster"] = 1 - record.body["cluster"]


def answered_twice(liar: Liar) -> None:
    records = liar.entries[liar.answer][1]
    records.append(next(r for r in records if r.kind == "ClientLeft"))


def ended_again(liar: Liar) -> None:
    body = {"rounds": 1, "planned": 3, "reason": "figure", "figure": "accuracy", "patience": 1}
    body |= {"clients": 0, "accuracy": 0.0, "target": 0.0}
    liar.add(Record(None, "RunEndedEarly", body))


def backwards(liar: Liar) -> None:
    _, records = liar.entries[1]
    liar.entries[1] = (SOME_TIME, records)


def unsealed(liar: Liar) -> None:
    liar.unsealed = True


LIES: dict[str, tuple[str, Lie, str]] = {
    "noise on sums": ("deny", noise("SumPerturbed", **SUM), "add no such noise"),
    "noise of shares": ("deny", noise("SharesPerturbed", **SHARES), "add no such noise"),
    "noise on representatives": (
        "deny",
        noise("RepresentativesPerturbed", **SETS),
        "add no such noise",
    ),
    "noise on updates": (
        "deny",
        of_all("UpdatesPerturbed", clip=1.0, noise_multiplier=9.0, clients=None),
        "add no such noise",
    ),
    "noise in steps": (
        "deny",
        of_all("StepsPerturbed", noise_multiplier=9.0, steps=1, sampling=0.5),
        "add no such noise",
    ),
    "noise in choices": (
        "deny",
        of_all("ChoicesPerturbed", epsilon=0.1, handles=None),
        "add no such noise",
    ),
    "small clips": ("deny", of_all("ExposuresLimited", exposures=0.01), "add no such noise"),
    "more noise": ("stop,noisy", in_every("SumPerturbed", noise_multiplier=9.0), "other noise"),
    "fewer clients": ("stop,noisy", in_every("SumPerturbed", sampling=0.01), "other noise"),
    "noise for records": ("stop,noisy", in_every("SumPerturbed", unit="record"), "other noise"),
    "fewer steps": ("stop,steps", fewer_steps, "other noise"),
    "no noise on sums": ("stop,noisy", without("SumPerturbed"), "and cluster 0 has none"),
    "no noise on updates": ("stop,local", without("UpdatesPerturbed"), "its settings add noise"),
    "no noise on sets": (
        "deny,sound",
        without("RepresentativesPerturbed"),
        "and cluster 0 has none",
    ),
    "no noise in steps": ("stop,steps", without("StepsPerturbed"), "its settings add noise, and"),
    "secrets of the system": (
        "deny",
        in_every("RunStarted", secrets="os"),
        "secrets: the settings",
    ),
    "another delta": ("deny", in_every("RunStarted", delta=0.1), "delta: the settings say"),
    "updates that are not stored": (
        "calibrate",
        in_every("RunStarted", updates_stored=False),
        "updates_stored: the settings say True",
    ),
    "another method": ("deny", in_every("RunStarted", method="ifca"), "method: the settings say"),
    "fewer rounds": ("deny", in_every("RunStarted", rounds=2), "rounds: the settings say 3"),
    "more models": ("deny", in_every("RunStarted", num_clusters=2), "num_clusters: the settings"),
    "a longer life of risks": (
        "deny",
        in_every("RunStarted", risk_lifetime=90),
        "risk_lifetime: the",
    ),
    "a threshold above k": ("deny", in_every("RunStarted", deniability_threshold=9), "sets of 4"),
    "a threshold without sets": (
        "stop,noisy",
        in_every("RunStarted", deniability_threshold=1),
        "sets of no members, it says 1",
    ),
    "a part of one's own as covey's": ("retrain,own", as_coveys, "train.loss: the settings say"),
    "features of any numbers": ("subtract", unhashed, "what its numbers hash to"),
    "a cluster without clients": (
        "roll_back,clusters",
        in_every("ClusterWaited", clients=0),
        "for its cluster, it says 0",
    ),
    "a cluster that waits for others": (
        "roll_back,clusters",
        in_every("ClusterWaited", min_anonymity=9),
        "clusters wait for 2 clients, not for 9",
    ),
    "a cluster that waits twice": ("roll_back,clusters", waits_twice, "its cluster waits twice"),
    "a set below k": ("deny", small_set, "sets have 4 to 7 members, not 3"),
    "a member that was not drawn": ("deny", undrawn_member, "a client that was not drawn"),
    "a member that did not train": (
        "roll_back,clusters",
        untrained_member,
        "hides a client that did not train",
    ),
    "a member of two sets": ("deny", member_of_two_sets, "a client stands in two of its sets"),
    "a leaver in no set": ("deny", in_no_set, "a client trained and stands in no set"),
    "a leaver that never trained": ("deny", never_trained, "not recorded what became of"),
    "a leaver that was never drawn": ("deny", never_drawn, "does not name all"),
    "sets that the seed does not draw": ("deny,blind", another_partition, "that the seed draws"),
    "fewer clients were merged": ("deny", fewer_merged, "[6] clients were merged"),
    "somebody joined a simulation": ("deny", joined, "a client joins once"),
    "two choices in a round": ("deny", chooses_twice, "clients choose once a round"),
    "a lower threshold for the answer": ("deny", lowered, "x was 3 since the request, and is 2"),
    "replays that merge nothing": ("retrain", merging_nothing, "no models were merged"),
    "a replay that begins later": ("retrain", later_start, "and round 0 is to be taken back"),
    "a replay that ends earlier": ("retrain", ends_in_between, "a round has one CohortSampled"),
    "the old model after a roll-back": ("retrain", back_to_the_old_model, "no answer needs a repl"),
    "the old model at the end": ("retrain", the_old_model_at_the_end, "not those of the last ro"),
    "choices as recorded that differ": ("roll_back,clusters", other_choices, "another cluster"),
    "an answer that comes twice": ("deny", answered_twice, "its request was answered before"),
    "an end after the end": ("deny", ended_again, "or the run has ended"),
    "times that run backwards": ("deny", backwards, "written before the one that it follows"),
    "a sealed record that is gone": ("deny", unsealed, "sealed_record_kept: the table of req"),
}
"""By name: in a run with which answer, how, and what refuses it."""


@pytest.mark.parametrize("name", LIES)
def test_what_the_grammar_refuses(left, name, tmp_path):
    kind, lie, said = LIES[name]
    forger = Forger(left(kind), tmp_path)
    in_the_ledger(lie)(forger)
    verification = forger.shown()
    assert said in " | ".join(f"{one.name}: {one.detail}" for one in verification.failed)


@pytest.mark.parametrize("kind", sorted({kind for kind, _, _ in LIES.values()}))
def test_what_is_true_is_accepted(left, kind, tmp_path):
    forger = Forger(left(kind), tmp_path)
    in_the_ledger(lambda _: None)(forger)
    assert forger.shown().failed == ()


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
    ("ComponentsUsed", "mixes_clusters"),
    ("StepsPerturbed", "steps"),
}
"""What rests on the operator's word: fields that no other event or setting contradicts.

Steps, and what a user's own part mixes, may only be more than they were: less is refused.
"""


def changed(value: Any, draw: random.Random) -> Any:
    """Return another value of the same kind."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + draw.choice([-1, 1, 7])
        case str():
            end = "1" if value.endswith("0") else "0"
            return draw.choice(["0" * 64, "x", value[:-1] + end])
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
        records = draw.choice([records for _, records in liar.entries])
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
    "kind",
    [
        *("deny", "deny,blind", "retrain", "retrain,own", "stop,noisy", "stop,steps"),
        *("roll_back,clusters", "subtract", "calibrate"),
    ],
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
