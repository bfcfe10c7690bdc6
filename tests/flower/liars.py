"""Lies of clients: what they do to an answer on its way."""

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from flower.conftest import Wire, written

Lie = Callable[[dict[str, Any], dict[str, np.ndarray]], None]
"""Changes an answer's words, and its update, in place."""


def lying(liars: Collection[str], lies: Mapping[str, Lie]) -> Wire:
    """Let liars change what their nodes answer to a task, "hello" included."""

    def wire(question: Message, reply: Message) -> list[Message]:
        said, lie = written(reply), lies.get(written(question)["request"]["task"])
        if lie is None or said["name"] not in liars:
            return [reply]
        record = reply.content.get("update", {})
        update = {name: value.numpy().copy() for name, value in record.items()}  # type: ignore[union-attr]
        lie(said, update)
        content = RecordDict({"covey": ConfigRecord({"json": json.dumps(said)})})
        if update:
            content["update"] = ArrayRecord({n: Array(value) for n, value in update.items()})
        return [Message(content, reply_to=question)]

    return wire


def sets_all(value: float) -> Lie:
    def lie(_: dict[str, Any], update: dict[str, np.ndarray]) -> None:
        for tensor in update.values():
            tensor[...] = value

    return lie


def announcing(**changes: Any) -> Lie:
    return lambda said, _: said.update(changes)


def weighing(weight: float) -> Lie:
    """An update four times as long, the other way, and of that weight."""

    def lie(said: dict[str, Any], update: dict[str, np.ndarray]) -> None:
        said["weight"] = weight
        for tensor in update.values():
            tensor *= -4.0

    return lie
