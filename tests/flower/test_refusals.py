"""Whatever a node sends, an answer that is not in order is as good as a lost one."""

import io
import json
import re
import shutil
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import tomli_w
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict

from covey import Config, Params, Run
from covey.base.events import AnswerRefused, AnswersMissing, Event
from covey.flower.apps import Federated
from covey.flower.client import shared_settings_hash
from covey.flower.identity import InvalidMessageError
from covey.flower.messages import PendingQuestion, question_of, reply_of
from covey.ledger.store import Ledger
from covey.runtime.folder import RunFolder
from covey.runtime.session import read_events
from flower.conftest import Built, settings_with

LIAR = "client-00001"
TRAIN = {"local_epochs": 1, "batch_size": 20}
CHOOSING = settings_with(
    rounds=4,
    train=TRAIN,
    method={"name": "ifca", "initialisation": "random"},
    risk={"name": "none"},
)
GIVEN = settings_with(rounds=4, train=TRAIN, method={"name": "isolated"}, risk={"name": "none"})
COUNTING = settings_with(
    rounds=4, train=TRAIN, method={"name": "fedavg"}, risk={"name": "federated", "every": 1}
)


@dataclass(frozen=True)
class Sent:
    """One reply of the liar, and what it sent before."""

    question: Message
    reply: Message
    earlier: tuple[RecordDict, ...]

    @property
    def update(self) -> ArrayRecord:
        record = self.reply.content["update"]
        assert isinstance(record, ArrayRecord)
        return record

    def of(self, content: RecordDict) -> list[Message]:
        return [Message(content, reply_to=self.question)]

    def saying(self, **changes: object) -> list[Message]:
        """The same reply with other values in its text."""
        told = {**written(self.reply), **changes}
        return self.in_words(json.dumps(told))

    def in_words(self, text: str) -> list[Message]:
        """The same reply with another text."""
        return self.having("covey", ConfigRecord({"json": text}))

    def with_update(
        self, change: Callable[[dict[str, np.ndarray]], Mapping[str, np.ndarray]]
    ) -> list[Message]:
        """The same reply with another update."""
        update = {name: value.numpy() for name, value in self.update.items()}
        arrays = {name: Array(value) for name, value in change(update).items()}
        return self.having("update", ArrayRecord(arrays))

    def with_bytes(self, data: bytes) -> list[Message]:
        """The same reply with other bytes in the place of one array."""
        update = dict(self.update)
        name, first = next(iter(update.items()))
        update[name] = Array(first.dtype, first.shape, first.stype, data)
        return self.having("update", ArrayRecord(update))

    def having(self, key: str, record: ArrayRecord | ConfigRecord) -> list[Message]:
        """The same reply with another record."""
        return self.of(RecordDict({**self.reply.content, key: record}))


Damage = Callable[[Sent], list[Message]]


def written(message: Message) -> dict[str, Any]:
    record = message.content["covey"]
    assert isinstance(record, ConfigRecord)
    return json.loads(str(record["json"]))


def given(question: Message) -> int:
    (context,) = written(question)["asked"]["contexts"].values()
    return context["given"]


def filled(value: float) -> Damage:
    def fill(update: dict[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        name = next(iter(update))
        spoilt = update[name].copy()
        spoilt.flat[0] = value
        return {**update, name: spoilt}

    return lambda sent: sent.with_update(fill)


def of_all(change: Callable[[np.ndarray], np.ndarray]) -> Damage:
    return lambda s: s.with_update(lambda u: {k: change(v) for k, v in u.items()})


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x.npy", b"")
    return buffer.getvalue()


def lying_about_its_shape() -> bytes:
    buffer = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (10**15,)}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue()


def counts(first: int = 0, rows: int = 5, bins: int = 81) -> list[list[int]]:
    table = [[0] * bins for _ in range(rows)]
    table[0][0] = first
    return table


FINITE, CLUSTERS = "finite numbers only", "must name one of the clusters"
READABLE, TEXT = "must be readable", "written as covey 0.2.0 does"
POSITIVE, TABLE = "must be a positive number", r"counts of shape \(5, 81\), from 0"
UPDATES: dict[str, tuple[Damage, str]] = {
    "not a number": (filled(np.nan), FINITE),
    "infinite": (filled(-np.inf), FINITE),
    "flat": (of_all(np.ravel), r"must be torch.float32 of shape \(\d+, \d+\)"),
    "in half precision": (of_all(lambda v: v.astype(np.float16)), "must be torch.float32"),
    "without a name": (
        lambda sent: sent.with_update(lambda u: dict(list(u.items())[1:])),
        "must have the model's names",
    ),
    "larger than the model": (of_all(lambda v: np.tile(v, 2048)), "as large as the model's"),
    "ten times as long": (of_all(lambda v: 10 * v), "far larger than the others'"),
    "garbage bytes": (lambda sent: sent.with_bytes(b"\x93NUMPY garbage"), READABLE),
    "a lying header": (lambda s: s.with_bytes(lying_about_its_shape()), READABLE),
}
WORDS: dict[str, tuple[Damage, str]] = {
    "an unknown cluster": (lambda s: s.saying(cluster=2), CLUSTERS),
    "a replay": (lambda s: s.of(s.earlier[-1]), "an answer to another question"),
    "another's name": (lambda s: s.saying(name="client-00002"), "for another client"),
    "another version": (
        lambda sent: sent.saying(covey_version="0.0.1"),
        "must have covey 0.2.0, like the server",
    ),
    "no covey record": (lambda s: s.of(RecordDict({"update": s.update})), TEXT),
    "no JSON": (lambda sent: sent.in_words("{"), TEXT),
    "an error of Flower": (
        lambda s: [Message(Error(2, "told by nobody"), reply_to=s.question)],
        "",
    ),
    "no weight": (lambda s: s.saying(weight=0), POSITIVE),
    "a negative weight": (lambda s: s.saying(weight=-1.0), POSITIVE),
    "a weight that is none": (lambda s: s.saying(weight=np.nan), POSITIVE),
    "the greater weight": (lambda s: s.saying(weight=1e6), "must be 1"),
    "more than accurate": (lambda s: s.saying(accuracy=1.01), r"lie in \[0, 1\]"),
}
CLUSTER: dict[str, tuple[Damage, str]] = {
    "not the given cluster": (
        lambda s: s.saying(cluster=1 - given(s.question)),
        r"must name one of the clusters \[[01]\]",
    )
}
COUNTS: dict[str, tuple[Damage, str]] = {
    "a fold too few": (lambda sent: sent.saying(members=counts(rows=4)), TABLE),
    "a negative count": (lambda sent: sent.saying(held_out=counts(-1)), TABLE),
    "a count beyond all": (lambda sent: sent.saying(members=counts(2**63)), TABLE),
}
ALSO: dict[str, tuple[Damage, str]] = {
    "a name too many": (
        lambda sent: sent.with_update(lambda u: {**u, "more": np.zeros(1)}),
        "must have the model's names",
    ),
    "no update": (
        lambda sent: sent.of(RecordDict({"covey": sent.reply.content["covey"]})),
        "must hold arrays called 'update'",
    ),
    "text for arrays": (
        lambda sent: sent.having("update", ConfigRecord({"x": 1})),
        "must hold arrays called 'update'",
    ),
    "an archive": (lambda sent: sent.with_bytes(zipped()), READABLE),
    "a broken archive": (lambda sent: sent.with_bytes(zipped()[:9]), READABLE),
    "words": (of_all(lambda v: v.astype("U1")), READABLE),
    "a negative cluster": (lambda s: s.saying(cluster=-1), CLUSTERS),
    "arrays for text": (lambda s: s.having("covey", s.update), TEXT),
    "a field missing": (lambda s: s.in_words('{"token": "x"}'), TEXT),
    "an error in the node": (lambda s: s.saying(failed="OSError"), "with OSError"),
    "an endless weight": (lambda s: s.saying(weight=np.inf), POSITIVE),
    "no accuracy": (lambda s: s.saying(accuracy=np.nan), r"lie in \[0, 1\]"),
}
ALSO_COUNTS: dict[str, tuple[Damage, str]] = {
    "no counts": (lambda sent: sent.saying(members=None), TABLE),
    "a bin too many": (lambda sent: sent.saying(held_out=counts(bins=82)), TABLE),
    "a ragged table": (lambda sent: sent.saying(members=[[], *counts(rows=4)]), TABLE),
    "more than a sum can hold": (lambda sent: sent.saying(members=[[2**62] * 81] * 5), TABLE),
}
AT_ONCE = 3
"""Damages in one run: to the liar's second answer, its third and its fourth."""


def in_runs(damages: dict[str, tuple[Damage, str]]) -> list[Any]:
    names = list(damages)
    groups = [names[i : i + AT_ONCE] for i in range(0, len(names), AT_ONCE)]
    return [(", ".join(group), [damages[name] for name in group] * AT_ONCE) for group in groups]


@dataclass
class Spoiling:
    """A wire that spoils the liar's answers to one task, from the second one on."""

    task: str
    damages: list[Damage]
    sent: list[RecordDict] = field(default_factory=list)

    def __call__(self, question: Message, reply: Message) -> list[Message]:
        asked = written(question)
        if (asked["name"], asked["asked"]["task"]) != (LIAR, self.task):
            return [reply]
        now = Sent(question, reply, tuple(self.sent))
        self.sent.append(reply.content)
        place = len(now.earlier) - 1
        spoilt = 0 <= place < len(self.damages)
        return self.damages[place](now) if spoilt else [reply]


def lost(sent: Sent) -> list[Message]:
    return []


def facts(result: Run) -> list[tuple[int | None, Event]]:
    with Ledger.read(RunFolder(result.folder).ledger) as ledger:
        return [(t, event) for t, events in read_events(ledger) for event in events]


def effects(result: Run) -> list[tuple[int | None, Event]]:
    """All that is recorded, but who was refused or missed."""
    silent = (AnswerRefused, AnswersMissing)
    return [(t, event) for t, event in facts(result) if not isinstance(event, silent)]


def refusals(result: Run) -> list[tuple[str | None, str]]:
    """Who was refused and why, in order; who gave no answer, with an empty reason."""
    names = {handle: name for name, handle in result.names.items()}
    told: list[tuple[str | None, str]] = []
    for _, event in facts(result):
        if isinstance(event, AnswerRefused):
            told.append((names.get(event.handle or ""), event.reason))
        elif isinstance(event, AnswersMissing):
            told += [(names[handle], "") for handle in event.handles]
    return told


def models(result: Run) -> list[Params]:
    return [result.params(j) for j in range(len(result.summary.clusters))]


@dataclass(frozen=True)
class Played:
    """What is left of a run."""

    events: list[tuple[int | None, Event]]
    models: list[Params]

    @classmethod
    def of(cls, result: Run) -> "Played":
        return cls(effects(result), models(result))

    def is_what_is_left_of(self, result: Run) -> None:
        assert effects(result) == self.events
        for model, expected in zip(models(result), self.models, strict=True):
            assert model.keys() == expected.keys()
            assert all(torch.equal(model[name], expected[name]) for name in model)


@pytest.fixture(scope="module")
def known() -> dict[str, Played]:
    return {}


@pytest.fixture
def oracle(known, build):
    """A federation, and its run in which some answers of the liar got lost."""

    def played(settings: Mapping[str, object], task: str, many: int) -> tuple[Built, Played]:
        federation = build(settings, clients=range(4))
        key = f"{settings} {task} {many}"
        if key not in known:
            federation.wire = Spoiling(task, [lost] * many)
            known[key] = Played.of(federation.play("oracle", nodes=4))
        return federation, known[key]

    return played


@pytest.mark.parametrize(
    ("settings", "task", "spoilt"),
    [
        pytest.param(settings, task, group[:AT_ONCE], id=f"{task}: {name}")
        for settings, task, damages in (
            (CHOOSING, "choose", UPDATES),
            (CHOOSING, "choose", WORDS),
            (GIVEN, "train", CLUSTER),
            (COUNTING, "count", COUNTS),
        )
        for name, group in in_runs(damages)
    ],
)
def test_an_answer_not_in_order_is_refused_and_nothing_else_changes(oracle, settings, task, spoilt):
    federation, expected = oracle(settings, task, len(spoilt))
    federation.wire = Spoiling(task, [damage for damage, _ in spoilt])
    result = federation.play("run", nodes=4)
    expected.is_what_is_left_of(result)
    for (who, reason), (_, wanted) in zip(refusals(result), spoilt, strict=True):
        assert who == LIAR
        assert re.search(wanted, reason) if wanted else not reason


@pytest.fixture(scope="module")
def answers() -> dict[str, tuple[Message, Message]]:
    return {}


@pytest.fixture
def answer(answers, oracle):
    """One question of a kind, and a reply that is in order."""

    def to(task: str) -> tuple[Message, Message]:
        if task not in answers:
            settings = CHOOSING if task == "choose" else COUNTING
            federation, _ = oracle(settings, task, 0 if task == "choose" else AT_ONCE)

            def kept(question: Message, reply: Message) -> list[Message]:
                answers.setdefault(written(question)["asked"]["task"], (question, reply))
                return [reply]

            federation.wire = kept
            federation.play("run", nodes=4)
        return answers[task]

    return to


@pytest.mark.parametrize(
    ("task", "damage", "wanted"),
    [
        pytest.param(task, damage, wanted, id=name)
        for task, damages in (("choose", ALSO), ("count", ALSO_COUNTS))
        for name, (damage, wanted) in damages.items()
    ],
)
def test_whatever_else_is_not_in_order_is_refused(answer, task, damage, wanted):
    question, reply = answer(task)
    expected = PendingQuestion("h", question_of(question.content))
    assert reply_of(reply.content, expected)[1].handle == "h"
    (spoilt,) = damage(Sent(question, reply, ()))
    with pytest.raises(InvalidMessageError, match=wanted):
        reply_of(spoilt.content, expected)


def test_the_first_answer_in_order_counts_and_no_other(oracle):
    federation, expected = oracle(CHOOSING, "choose", 0)

    def twice(sent: Sent) -> list[Message]:
        return [sent.reply, *filled(0.0)(sent)]

    def at_last(sent: Sent) -> list[Message]:
        return [*filled(np.nan)(sent), sent.reply]

    federation.wire = Spoiling("choose", [twice, at_last])
    result = federation.play("run", nodes=4)
    expected.is_what_is_left_of(result)
    (who, again), (_, spoilt) = refusals(result)
    assert who == LIAR
    assert again == "it has answered already"
    assert FINITE in spoilt


def test_nobody_answers_in_the_place_of_another_node(oracle):
    federation, expected = oracle(CHOOSING, "choose", 0)
    asked: dict[str, Message] = {}

    def forging(question: Message, reply: Message) -> list[Message]:
        """The last node answers first, in the name of the first, and knows the token."""
        told = written(question)
        asked[told["name"]] = question
        if told["asked"]["task"] != "choose" or told["name"] != "client-00003":
            return [reply]
        victim = asked["client-00000"]
        words = Sent(victim, reply, ()).saying(name="client-00000", token=written(victim)["token"])
        words[0].metadata.__dict__["_src_node_id"] = reply.metadata.src_node_id
        return [*words, reply]

    federation.wire = forging
    result = federation.play("run", nodes=4)
    expected.is_what_is_left_of(result)
    assert refusals(result) == []


def test_who_does_not_fit_in_is_told_why_and_the_run_goes_on(build):
    settings = {**CHOOSING, "rounds": 2}
    federation = build(settings, clients=range(3))
    alone = Played.of(federation.play("alone", nodes=3))
    other = {**settings, "train": {**TRAIN, "learning_rate": 0.07}}
    (federation.path / "other.toml").write_text(tomli_w.dumps(other))
    federation.node("client-00003", config="../other.toml")
    twin = federation.path / "twin"
    twin.mkdir()
    first = federation.path / "client-00000"
    (twin / "node.toml").write_text((first / "node.toml").read_text())
    federation.files[104] = str(twin / "node.toml")
    federation.node("client-00005")
    small = {"x": np.zeros((9, 6, 6), np.uint8), "y": np.arange(9)}
    np.savez(federation.path / "small.npz", allow_pickle=False, **small)
    federation.node("client-00006", data="../small.npz")
    federation.node("client-00007", data="../absent.npz")
    invited = frozenset(f"client-0000{index}" for index in (0, 1, 2, 3, 6, 7))
    federated = Federated(federation.path / "covey.toml", invited=invited)
    result = federated.start(federation.grid(), federation.path / "run", 3)
    alone.is_what_is_left_of(result)
    assert refusals(result) == [
        (None, reason)
        for reason in (
            "its covey.toml differs in data, model, train, method, aggregation, risk, "
            "privacy or secrets.source: give it the server's",
            "it failed with DataError: look into the node's log",
            "another node of its name is there: give it a name of its own",
            "it is not invited: put its name on the list, or correct it",
            "its examples must be (1, 8, 8), like the others', found (1, 6, 6)",
        )
    ]


@pytest.mark.parametrize(
    ("other", "agrees"),
    [
        ({"secrets": {"source": "os"}}, False),
        ({"train": {"learning_rate": 0.07}}, False),
        ({"secrets": {"key_path": "own.pem"}}, True),
        ({"data": {"dir": "elsewhere"}}, True),
    ],
    ids=["secrets", "training", "own-key", "own-folder"],
)
def test_settings_are_agreed_on_but_for_what_lies_where(other, agrees):
    found, expected = (shared_settings_hash(Config.of(other)), shared_settings_hash(Config.of({})))
    assert (found == expected) is agrees


def test_an_error_in_a_node_tells_nothing_but_its_kind(build, own_data):
    federation = build(CHOOSING, clients=range(3))
    ward = federation.path / "ward-seven" / "patients.npz"
    ward.parent.mkdir()
    shutil.copy(own_data / "client-00003.npz", ward)
    federation.node("client-00003", data="../ward-seven/patients.npz")

    def removed(question: Message, reply: Message) -> list[Message]:
        if written(question)["asked"]["path"][:2] == ["round", 1]:  # the first answer of it
            ward.unlink(missing_ok=True)
        return [reply]

    federation.wire = removed
    result = federation.play(nodes=4)
    assert [r.participants for r in result.history.rounds] == [4, 3, 3, 3]
    assert set(refusals(result)) == {
        ("client-00003", "it failed with DataError: look into the node's log")
    }
    for file in result.folder.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert b"ward-seven" not in content
            assert b"patients" not in content
