"""Readers of what servers and nodes send to each other."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from covey.algorithms.client_requests import ClientRequest
from covey_flower.messages import (
    Hello,
    PendingQuestion,
    Question,
    Reply,
    arrays,
    encode,
    hello_of,
    make_message,
    question_of,
    reply_of,
)
from slow.mutations import of_json
from slow.reading import Reader

MODEL = {"w": torch.ones(2, 3), "b": torch.zeros(2)}
QUESTION = Question("0.2.0", "run", "token", "a", ClientRequest("train", (MODEL,), (True,)))
PENDING = PendingQuestion("h-1", QUESTION)
REPLY = Reply("0.2.0", "token", "a")


def message_readers(folder: Path) -> Iterator[tuple[str, Reader]]:
    path = folder / "message"
    hello = Hello("0.2.0", "token", "a", "same", (4,), images=True, classes=3)
    readers: dict[str, tuple[RecordDict, Callable[[RecordDict], object]]] = {
        "questions": (make_message(QUESTION, 7, 60.0).content, question_of),
        "replies": (encode(REPLY, MODEL), lambda c: reply_of(c, PENDING)),
        "hellos": (encode(hello), lambda c: hello_of(c, "token", "same")),
    }
    for name, (content, read) in readers.items():
        text = str(content["covey"]["json"]).encode()  # pyright: ignore

        def said(content: RecordDict = content, read: Any = read) -> object:
            words = path.read_bytes().decode("utf-8", "surrogateescape")
            records = {**content, "covey": ConfigRecord({"json": words})}
            return read(RecordDict(records))

        yield name, Reader(path, text, said, of_json)


def array_readers(folder: Path) -> Iterator[tuple[str, Reader]]:
    path = folder / "message"
    honest = arrays(MODEL)["w"]
    shape = {"dtype": honest.dtype, "shape": honest.shape, "stype": honest.stype}
    parts: dict[str, Any] = {**shape, "data": honest.data}

    def with_array(**changed: Any) -> object:
        try:
            record = ArrayRecord({**arrays(MODEL), "w": Array(**{**parts, **changed})})
        except TypeError:  # Flower itself carries no such array
            return None
        content = RecordDict({**encode(REPLY), "update": record})
        return reply_of(content, PENDING)

    yield ("arrays", Reader(path, honest.data, lambda: with_array(data=path.read_bytes())))
