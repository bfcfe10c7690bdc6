"""One node stops no federation: what it sends is bounded, and so is the wait for it."""

import io
import json
from collections import Counter
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from covey import __version__
from covey.algorithms.client_requests import ClientContext, ClientRequest
from covey.base.events import AnswerRefused
from covey_flower.identity import InvalidMessageError
from covey_flower.messages import (
    MAX_CLASSES,
    MAX_NAME,
    MAX_NUMBERS,
    Hello,
    PendingQuestion,
    Question,
    Reply,
    encode,
    hello_of,
    reply_of,
)
from covey_flower.server import (
    LEAST_SECONDS,
    PATIENCE,
    SLOWER,
    AdmissionPolicy,
    Backoff,
    FlowerServer,
    time_limit,
)
from flower.conftest import answering
from flower.inprocess import InProcessGrid

HONEST: dict[str, Any] = json.loads(
    str(encode(Hello(__version__, "t", "n", "same", (1, 8, 8), True, 10))["covey"]["json"])  # type: ignore[index]  # noqa: FBT003
)
QUESTION = PendingQuestion(
    "h",
    Question(
        *(__version__, "run", "t", "n"),
        ClientRequest("train", ({"w": torch.zeros(2)},), (True,)),
        10,
    ),
)


def hello(**said: Any) -> Hello:
    text = json.dumps({**HONEST, **said})
    return hello_of(RecordDict({"covey": ConfigRecord({"json": text})}), "t", "same")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"classes": 10**7}, f"at most {MAX_CLASSES} classes"),
        ({"classes": -1}, f"at most {MAX_CLASSES} classes"),
        ({"shape": [10**9]}, f"{MAX_NUMBERS} numbers"),
        ({"shape": [10**5] * 9}, "at most 8 dimensions"),
        ({"shape": [0, 8]}, "at most 8 dimensions"),
        ({"name": "n" * (MAX_NAME + 1)}, f"at most {MAX_NAME} printable characters"),
        ({"name": "n" * 5_000_000}, "written as covey"),
        ({"name": "alice\x00"}, "128 printable characters"),
        ({"name": "alice\n# erased"}, "128 printable characters"),
        ({"failed": "E" * 3_000_000}, "written as covey"),
        ({"failed": "E" * 3_000}, "failed with an error:"),
        ({"failed": "ward seven, bed 2"}, "failed with an error:"),
        ({"examples": 10**12}, "at most 1000000000"),
        ({"examples": 0}, "at least 1 example"),
        ({"held_out": -1}, "at least 1 example"),
    ],
)
def test_who_comes_with_too_much_is_refused(said: dict[str, Any], reason: str):
    with pytest.raises(InvalidMessageError, match=reason) as refused:
        hello(**said)
    assert len(str(refused.value)) < 200


def npy(shape: tuple[int, ...], dtype: str, data: bytes) -> bytes:
    file = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + data


@pytest.mark.parametrize(
    "data",
    [
        npy((10**10,), "<f4", bytes(8)),
        npy((10**10,), "|V0", b""),
        npy((2,), "|O", bytes(16)),
        npy((2,), "<f4", bytes(7)),
        npy((-2,), "<f4", bytes(8)),
        b"\x93NUMPY\x03\x00" + bytes(99),
    ],
    ids=["40 GB", "no bytes", "objects", "a byte short", "negative", "version 3"],
)
def test_an_array_that_says_it_is_larger_is_never_unpacked(data: bytes):
    content = encode(Reply(__version__, "t", "n"))
    lying = Array(dtype="float32", shape=(2,), stype="numpy.ndarray", data=data)
    content["update"] = ArrayRecord({"w": lying})
    with pytest.raises(InvalidMessageError):
        reply_of(content, QUESTION)


MUTE = 3
SECONDS = 600.0


class Slow(InProcessGrid):
    """A grid on which answers take their time, and silence is no error."""

    now = 0.0

    def __init__(self, *script: Any) -> None:
        super().__init__(*script)
        self.takes: dict[int, float] = {}
        self._pushed = 0.0

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        self._pushed = self.now
        return super().push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        passed = self.now - self._pushed
        replies = [*super().pull_messages(message_ids)]
        ready = [m for m in replies if passed >= self.takes.get(node_of(m), 0.0)]
        self._arrived = [m for m in replies if m not in ready]
        return ready

    def silence(self, message: Message) -> list[Message]:
        return []

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def node_of(reply: Message) -> int:
    return reply.metadata.src_node_id


class Rounds:
    """Rounds of a federation of four, one of which may be mute."""

    def __init__(self, make_client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.mute: set[str] = set()
        self.counts: Counter[str] = Counter()

        def wire(question: Message, reply: Message) -> list[Message]:
            content = json.loads(str(question.content["covey"]["json"]))  # type: ignore[index]
            kind = f"{content['request']['task']} n{question.metadata.dst_node_id}"
            self.counts[kind] += 1
            return [] if kind in self.mute else [reply]

        self.grid = Slow(answering(), dict.fromkeys(range(4), ""), wire)
        policy = AdmissionPolicy("run", "same", timeout=SECONDS)
        clock = SimpleNamespace(monotonic=lambda: self.grid.now, sleep=self.grid.sleep)
        monkeypatch.setattr("covey_flower.server.time", clock)
        self.server = FlowerServer(self.grid, policy)
        self.client = lambda name: make_client(name, None)

    def play(self, rounds: int) -> list[int]:
        """Return how many answered in each round."""
        return [self._round() for _ in range(rounds)]

    def _round(self) -> int:
        names = sorted(self.server.available_clients())
        cohort = tuple(self.client(name) for name in names)
        slips = {client.handle: ClientContext() for client in cohort}
        call = ClientRequest("train", ({"w": torch.zeros(1)},), (True,), (), slips)
        return len(self.server.send(call, cohort))


@pytest.fixture
def rounds(make_client, monkeypatch) -> Rounds:
    return Rounds(make_client, monkeypatch)


def test_who_is_silent_costs_five_waits_and_no_more(rounds: Rounds):
    rounds.mute = {f"train n{MUTE}"}
    assert rounds.play(60) == [3] * 60
    assert rounds.counts[f"train n{MUTE}"] == PATIENCE
    assert rounds.grid.now == PATIENCE * LEAST_SECONDS
    events = rounds.server.reports().events
    reasons = [event.reason for event in events if isinstance(event, AnswerRefused)]
    assert len(reasons) == 1


def test_who_was_restarted_is_asked_again(rounds: Rounds):
    rounds.mute = {f"train n{MUTE}"}
    rounds.play(30)
    del rounds.grid.files[MUTE]
    rounds.play(1)
    rounds.grid.files[MUTE], rounds.mute = "", set()
    assert rounds.play(3) == [4] * 3


def test_the_kind_of_data_is_that_of_most_who_come_first(rounds: Rounds):
    plain = rounds.grid._wire

    def lying(question: Message, reply: Message) -> list[Message]:
        record = reply.content["covey"]
        array = json.loads(str(record["json"]))  # type: ignore[index]
        if "shape" in array and question.metadata.dst_node_id == 0:
            array["shape"] = [3, 999]
            reply.content["covey"] = ConfigRecord({"json": json.dumps(array)})
        return plain(question, reply)

    rounds.grid._wire = lying
    assert rounds.play(1) == [3]
    assert rounds.server.profile.shape == (1, 8, 8)


def test_who_answers_just_in_time_does_not_slow_everybody_down(rounds: Rounds):
    rounds.play(1)  # everybody says hello
    rounds.grid.takes = {0: 30.0, 1: 40.0, 2: 50.0, MUTE: SECONDS - 10}
    assert rounds.play(60) == [3] * 60
    waits = PATIENCE * SLOWER * 50.0
    assert rounds.grid.now == pytest.approx(waits + (60 - PATIENCE) * 50.0)
    assert rounds.counts[f"train n{MUTE}"] == 1 + PATIENCE


@given(st.floats(1, 10_000), st.lists(st.floats(0, 10_000), min_size=1, max_size=2).map(sorted))
def test_a_limit_is_within_the_configured_one_and_grows_with_the_others_time(limit, halves):
    limits = [time_limit(limit, half) for half in halves]
    assert sorted(limits) == limits
    assert time_limit(limit, None) == limit
    for half, seconds in zip(halves, limits, strict=True):
        assert min(limit, LEAST_SECONDS, half) <= seconds <= limit


@given(st.lists(st.booleans(), max_size=60))
def test_off_rounds_double_and_end_with_an_answer(silences):
    backoff, k, off = Backoff(), 0, 0
    for silent in silences:
        backoff.begin_round({7})
        assert backoff.is_off(7) == (off > 0 or k >= PATIENCE)
        if backoff.is_off(7):
            off -= 1
        elif silent:
            k += 1
            off = 2 ** (k - 1)
            assert backoff.record_timeout(7) == (k == PATIENCE)
        else:
            k = 0
            backoff.answered(7)
