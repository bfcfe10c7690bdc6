"""Sums that travel under masks: the bits of the simulation, and who is told what."""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from flwr.app import Context, Message, RecordDict

import covey
from covey import ConfigError, Run, RunError
from covey.algorithms.client_requests import ClientRequest
from covey.algorithms.sum_moves import Moves
from covey.base.events import (
    AnswerRefused,
    AnswersMissing,
    ClusterWaited,
    HeadsSolved,
    ModelsMerged,
    MovesWaited,
    SumGivenUp,
)
from covey.flower.client import Node, client_app
from covey.flower.deployment import NodeKey
from covey.flower.messages import LETTER, Question, letter_in, with_letter
from covey.models.ridge_sums import Sums
from covey.runtime.folder import RunFolder
from covey.secure_sums.messages import Reason
from flower.conftest import Built, all_of, settings_with
from flower.inprocess import reply_from
from flower.test_federation import question_in
from flower.test_solved import LAST, PowerCut, kept_of, proof_of, solved, without_last

LIAR = "client-00001"
SLOW = pytest.mark.slow


def masked(
    rounds: int = 2, least: int = 3, risk: str = "none", **method: object
) -> dict[str, object]:
    privacy = {"secure_sums": True, "min_cohort": least}
    return {**solved(rounds, risk, **method), "privacy": privacy}


ONE = masked(num_clusters=1)
TWO = masked(4, initialisation="random")


def own_sums(federation: Built, result: Run, names: list[str]) -> Sums:
    """The sums over these clients' records, of weight 1, as each node makes them."""
    d = len(kept_of(result).targets[0])
    found = Sums.nothing(d, 10)
    for name in names:
        member = Node(federation.path / name / "node.toml").member(10)
        assert member.records is not None
        found += member.records.sums([(member.client.train, 256)], d)
    return found


def everybody(*without: str) -> list[str]:
    return [n for n in (f"client-{i:05}" for i in range(6)) if n not in without]


def step_of(question: Message) -> tuple[Question, str]:
    told = question_in(question)
    return told, told.request.sums.step if told.request.sums else ""


def bits(result: Run) -> list[tuple[str, ...]]:
    return [each.sums for each in all_of(HeadsSolved, result)]


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(ONE, marks=SLOW),
        TWO,
        pytest.param(masked(3, initialisation="random", pooling=0.3), marks=SLOW),
    ],
)
def test_sums_under_masks_are_those_of_the_simulation(build, settings):
    federation = build(settings)
    asked: list[tuple[str, str]] = []

    def wire(question: Message, reply: Message) -> list[Message]:
        told, step = step_of(question)
        asked.append((told.request.task, step))
        return [reply]

    federation.wire = wire
    there, here = federation.play(nodes=6), federation.simulated()
    assert bits(there) == bits(here)
    assert there.summary.model_hash == here.summary.model_hash
    assert there.history.assignment == here.history.assignment
    steps = {"keys", "shares", "masked", "agreements", "unmasking"}
    assert steps <= {step for _, step in asked}
    assert not {task for task, _ in asked} & {"sum", "mean"}


@pytest.mark.parametrize(
    "step",
    [
        pytest.param("keys", marks=SLOW),
        pytest.param("shares", marks=SLOW),
        "masked",
        pytest.param("agreements", marks=SLOW),
        pytest.param("unmasking", marks=SLOW),
    ],
)
def test_who_drops_out_of_a_step_costs_its_own_sums_at_most(build, step):
    federation = build(ONE)

    def wire(question: Message, reply: Message) -> list[Message]:
        told, at = step_of(question)
        lost = (told.name, at, told.request.round_index) == (LIAR, step, 0)
        return [] if lost else [reply]

    federation.wire = wire
    result = federation.play(nodes=6)
    handle = result.names[LIAR]
    counted = step in ("agreements", "unmasking")  # its numbers had come
    assert all_of(AnswersMissing, result)[0] == AnswersMissing("masked", (handle,))
    assert all_of(HeadsSolved, result)[0].clients == (6 if counted else 5,)
    names = everybody() if counted else everybody(LIAR)
    assert kept_of(result).sums == (own_sums(federation, result, names),)
    waiting = [each.clients for each in all_of(MovesWaited, result)]
    assert waiting == ([] if counted else [(handle,)])  # alone it would stand out


def changed_letter(question: Message, reply: Message, change: Callable[[bytes], bytes]) -> Message:
    content = RecordDict(dict(reply.content))
    content[LETTER] = with_letter(change(letter_in(reply.content, 1e9)))
    return Message(content, reply_to=question)


def other_share(letter: bytes) -> bytes:
    told = json.loads(letter)
    told["shares"][0]["share"] = told["shares"][1]["share"]
    return json.dumps(told).encode()


def other_session(letter: bytes) -> bytes:
    told = json.loads(letter)
    told["session"] = b64encode(bytes(32)).decode()
    return json.dumps(told).encode()


@pytest.mark.parametrize(
    ("step", "change", "reason"),
    [
        ("unmasking", other_share, Reason.FORGED_SHARE),
        pytest.param("unmasking", other_session, Reason.WRONG_SESSION, marks=SLOW),
        pytest.param("masked", lambda letter: letter[:-8], Reason.WRONG_LENGTH, marks=SLOW),
        pytest.param("shares", lambda _: b"{}", Reason.MALFORMED, marks=SLOW),
        pytest.param("keys", lambda _: b"", Reason.MALFORMED, marks=SLOW),
    ],
)
def test_what_is_forged_is_refused_by_name_and_the_sum_goes_on(build, step, change, reason):
    federation = build(ONE)

    def wire(question: Message, reply: Message) -> list[Message]:
        told, at = step_of(question)
        if (told.name, at, told.request.round_index) != (LIAR, step, 0):
            return [reply]
        return [changed_letter(question, reply, change)]

    federation.wire = wire
    result = federation.play(nodes=6)
    handle = result.names[LIAR]
    assert all_of(AnswerRefused, result) == [AnswerRefused(handle, reason.value)]
    names = everybody() if step == "unmasking" else everybody(LIAR)
    assert kept_of(result).sums == (own_sums(federation, result, names),)


@SLOW
def test_what_comes_twice_or_late_is_refused_and_the_first_one_counts(build):
    federation = build(ONE)
    late: list[Message] = []

    def wire(question: Message, reply: Message) -> list[Message]:
        told, step = step_of(question)
        if told.name != LIAR or told.request.task != "masked":
            return [reply]
        if step == "unmasking":
            late_one = Message(late[0].content, reply_to=question)
            return [reply, reply, late_one]
        late.append(reply)
        return [reply]

    federation.wire = wire
    result = federation.play(nodes=6)
    assert all(e.handle == result.names[LIAR] for e in all_of(AnswerRefused, result))
    assert len(all_of(AnswerRefused, result)) == 2
    assert bits(result) == bits(federation.simulated())


def failure_of(reply: Message) -> str:
    return json.loads(str(reply.content["covey"]["json"]))["failed"]


@pytest.mark.parametrize(
    "step",
    [
        pytest.param("shares", marks=SLOW),
        pytest.param("masked", marks=SLOW),
        pytest.param("agreements", marks=SLOW),
        "unmasking",
    ],
)
def test_a_node_takes_no_step_twice_however_often_it_starts(build, step):
    federation = build(ONE)
    again: list[str] = []

    def wire(question: Message, reply: Message) -> list[Message]:
        told, at = step_of(question)
        if (told.name, at) == (LIAR, step):
            file = federation.files[101]
            context = Context(1, 101, {"file": file}, RecordDict(), {})
            again.append(failure_of(reply_from(client_app, question, context)))
        return [reply]

    federation.wire = wire
    result = federation.play(nodes=6)
    expected = "LATE" if step == "unmasking" else "REPEATED"
    assert again == [expected]
    assert bits(result) == bits(federation.simulated())


def test_a_sum_over_fewer_than_a_node_accepts_is_refused_by_the_node(build):
    federation = build(ONE)
    federation.node(LIAR, min_cohort=7)
    result = federation.play(nodes=6)
    refused = all_of(AnswerRefused, result)[0]
    told = f"it refused: {Reason.TOO_FEW_CLIENTS.value}"
    assert (refused.handle, refused.reason) == (result.names[LIAR], told)
    sums = own_sums(federation, result, everybody(LIAR))
    assert kept_of(result).sums == (sums,)


@SLOW
def test_fewer_than_the_smallest_cohort_are_not_asked(build):
    federation = build(masked(1, 4, num_clusters=1), clients=range(3))
    result = federation.play(nodes=3)
    assert all_of(HeadsSolved, result)[0].clients == (0,)
    (waited,) = all_of(MovesWaited, result)
    assert len(waited.clients) == 3


@SLOW
def test_a_sum_of_which_too_few_are_left_is_given_up_and_asked_for_again(build):
    federation = build(masked(2, 5, num_clusters=1))
    gone = ("client-00001", "client-00002")

    def wire(question: Message, reply: Message) -> list[Message]:
        told, step = step_of(question)
        lost = told.name in gone and step == "masked" and told.request.round_index == 0
        return [] if lost else [reply]

    federation.wire = wire
    result = federation.play(nodes=6)
    (given_up,) = all_of(SumGivenUp, result)
    assert len(given_up.clients) == 6
    assert [each.clients for each in all_of(HeadsSolved, result)] == [(0,), (6,)]
    assert bits(result)[-1] == bits(federation.simulated())[-1]


@SLOW
@pytest.mark.parametrize("lost", [{LIAR}, {"client-00000", LIAR, "client-00002"}])
def test_who_was_shown_in_a_sum_that_did_not_come_moves_together(build, lost):
    """With two of six gone, shares are too few for a sum that five have signed."""
    federation = build(masked(3, 3, num_clusters=1))

    def wire(question: Message, reply: Message) -> list[Message]:
        told, step = step_of(question)
        first = told.request.round_index == 0
        if (told.name, step, first) == (LAST, "masked", True):
            return []
        cut = told.name in lost and step == "unmasking" and first
        return [] if cut else [reply]

    federation.wire = wire
    result = federation.play(nodes=6)
    handle = result.names[LAST]
    assert len(all_of(SumGivenUp, result)) == 1
    assert [e.clients for e in all_of(MovesWaited, result)] == [(handle,)] * 2
    sums = own_sums(federation, result, everybody(LAST))
    assert kept_of(result).sums == (sums,)


@SLOW
def test_a_key_that_others_do_not_know_keeps_only_its_own_node_out(build):
    federation = build(ONE)
    other = NodeKey.new(LIAR)
    (federation.path / LIAR / "key").write_bytes(other.private)
    result = federation.play(nodes=6)
    told = AnswerRefused(result.names[LIAR], Reason.FORGED_SIGNATURE.value)
    assert all_of(AnswerRefused, result)[0] == told
    sums = own_sums(federation, result, everybody(LIAR))
    assert kept_of(result).sums == (sums,)


@SLOW
def test_a_node_refuses_a_roster_with_a_key_that_it_does_not_know(build):
    federation = build(ONE)
    peers = federation.path / LIAR / "peers"
    lines = peers.read_bytes().splitlines(keepends=True)
    peers.write_bytes(b"".join(lines[:-1]))
    result = federation.play(nodes=6)
    told = f"it refused: {Reason.FORGED_SIGNATURE.value}"
    assert all_of(AnswerRefused, result)[0].reason == told
    sums = own_sums(federation, result, everybody(LIAR))
    assert kept_of(result).sums == (sums,)


@SLOW
@pytest.mark.parametrize("step", [*("keys", "shares", "masked", "agreements", "unmasking")])
def test_a_server_that_was_killed_begins_a_round_with_another_number(build, step):
    federation = build(ONE)
    sessions: list[str] = []

    def wire(question: Message, reply: Message) -> list[Message]:
        told, at = step_of(question)
        if told.name == "client-00003" and told.request.task == "masked":
            sessions.append(told.context.session)
            if at == step and len(set(sessions)) == 1:
                raise PowerCut
        return [reply]

    federation.wire = wire
    with pytest.raises(PowerCut):
        federation.play(nodes=6)
    result = federation.play(nodes=6)
    assert len(set(sessions)) == 2
    assert bits(result) == bits(federation.simulated())


@pytest.fixture
def own_keys(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "keys"))


@pytest.mark.usefixtures("own_keys")
def test_who_leaves_gives_its_sums_once_if_it_wants_to(build):
    federation = build(ONE)
    federation.play(nodes=6)
    with pytest.raises(RunError, match="leave = true"):
        without_last(federation)
    federation.node(LAST, leave=True)
    result = federation.play(nodes=6)
    here = federation.simulated()
    here.forget(LAST, "subtract")
    assert bits(result)[-1] == bits(covey.load(here.folder))[-1]
    assert LAST not in result.names
    sums = own_sums(federation, result, everybody(LAST))
    assert kept_of(result).sums == (sums,)
    proof_of(result)


@SLOW
@pytest.mark.usefixtures("own_keys")
def test_without_the_leavers_node_those_who_know_it_sum_anew(build):
    federation = build(masked(3, initialisation="random"))
    federation.play(nodes=6)
    del federation.files[105]
    for name in everybody(LAST):
        federation.node(name, left=[LAST])
    there, here = without_last(federation)
    assert kept_of(there).sums == kept_of(here).sums
    assert bits(there)[-1] == bits(here)[-1]
    proof_of(there)


@SLOW
@pytest.mark.usefixtures("own_keys")
def test_nobody_helps_to_single_out_a_client_that_is_said_to_have_left(build):
    federation = build(ONE)
    before = federation.play(nodes=6)
    del federation.files[105]
    RunFolder(federation.path / "run").queue_request(LAST, "subtract", "erasure")
    with pytest.raises(RunError, match="left"):
        federation.play(nodes=6)
    assert covey.load(before.folder).names == before.names


def test_who_was_summed_together_moves_together_or_not_at_all():
    parts = {**dict.fromkeys("ABCD", 0), **dict.fromkeys("EFG", 1)}
    moves = Moves({**dict.fromkeys("ABCD", 1), **dict.fromkeys("EFG", 1)}, parts, 3)
    assert moves.groups() == (frozenset("ABCD"), frozenset("EFG"))
    assert moves.groups(among="ABCEFG") == (frozenset("EFG"),)
    assert Moves(dict.fromkeys("ABC", 1), parts, 3).groups() == ()
    assert Moves(dict.fromkeys("HI", 1), parts, 3).groups() == ()
    assert Moves(dict.fromkeys("HIJ", 1), parts, 3).groups() == (frozenset("HIJ"),)
    assert Moves(dict.fromkeys("EF", 1), dict.fromkeys("EF", 1), 3).groups() == ()


@SLOW
def test_counts_of_losses_are_added_up_under_masks(build):
    settings = {**masked(3, num_clusters=1), **counted("federated")}
    federation = build(settings)
    tasks: set[str] = set()

    def wire(question: Message, reply: Message) -> list[Message]:
        tasks.add(step_of(question)[0].request.task)
        return [reply]

    federation.wire = wire
    there, here = federation.play(nodes=6), federation.simulated()
    assert there.history.measured
    assert [f.estimate for f in there.history.measured] == [
        f.estimate for f in here.history.measured
    ]
    assert "count" not in tasks


def counted(risk: str) -> dict[str, object]:
    return {"risk": {"name": risk, "every": 1}}


def averaged(method: str = "fedavg", **sections: Mapping[str, object]) -> dict[str, object]:
    """Networks whose updates are averaged under masks."""
    return settings_with(
        rounds=2,
        method={"name": method},
        aggregation={"name": "mean", "weights": "examples"},
        privacy={"secure_sums": True, "min_cohort": 3},
        risk={"name": "none"},
        **sections,
    )


@pytest.mark.parametrize(
    "settings",
    [
        averaged(),
        pytest.param(averaged("fedprox"), marks=SLOW),
        pytest.param(averaged("ditto"), marks=SLOW),
    ],
    ids=["fedavg", "fedprox", "ditto"],
)
def test_means_of_updates_under_masks_are_those_of_the_simulation(build, settings):
    federation = build(settings)
    tasks: set[str] = set()

    def wire(question: Message, reply: Message) -> list[Message]:
        tasks.add(step_of(question)[0].request.task)
        return [reply]

    federation.wire = wire
    there, here = federation.play(nodes=6), federation.simulated()
    assert there.summary.model_hash == here.summary.model_hash
    assert not tasks & {"train", "choose"}


@SLOW
@pytest.mark.parametrize("gone", [{LIAR}, {f"client-{i:05}" for i in range(4)}])
def test_a_mean_is_over_whoever_stays_and_too_few_wait(build, gone):
    federation = build(averaged())

    def wire(question: Message, reply: Message) -> list[Message]:
        told, step = step_of(question)
        lost = told.name in gone and step == "shares" and told.request.path[1] == 0
        return [] if lost else [reply]

    federation.wire = wire
    result = federation.play(nodes=6)
    first, second, *_ = all_of(ModelsMerged, result)
    waited = len(gone) == 4
    assert (first.participants, second.participants) == ((5 - 5 * waited,), (6,))
    assert all_of(ClusterWaited, result) == [ClusterWaited(0, 0, 3)] * waited


@pytest.mark.parametrize("task", ["train", "count", "mean", "sum"])
def test_a_node_tells_nothing_of_itself_alone(build, task):
    federation = build(averaged(), clients=[0])
    node = Node(Path(federation.files[100]))
    asked = ClientRequest(task, path=("round", 0))
    with pytest.raises(ConfigError, match="own sums are revealed only"):
        node.sums("run").check_request(asked, node.member(10))


@SLOW
def test_another_run_without_one_client_is_no_way_round(build):
    federation = build(masked(1, num_clusters=1))
    first = federation.play(nodes=6)
    del federation.files[105]
    second = federation.play("second", nodes=5)
    assert all_of(HeadsSolved, first)[0].clients == (6,)
    assert all_of(HeadsSolved, second)[0].clients == (0,)
    told = {f"it refused: {Reason.SINGLED_OUT.value}"}
    assert {each.reason for each in all_of(AnswerRefused, second)} == told
