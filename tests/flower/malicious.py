"""A server that breaks its own rules: it asks nodes for sums of its choice."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from conftest import NO_EXAMPLES, client
from covey import Config, Params, Streams, __version__
from covey.aggregation.mean import numbers_of_update
from covey.algorithms.client_requests import ClientContext, ClientRequest, SumStep
from covey.algorithms.group_sums import GroupSum
from covey.ridge.sums import Sums
from covey.secure_sums.messages import Terms
from covey.settings.run import build_run
from covey_flower.client import Node, answer_message
from covey_flower.messages import Question, letter_in, make_message
from flower.conftest import Built
from flower.inprocess import outside_a_run

__all__ = ["MaliciousServer", "RefusedByNodeError", "Summing", "head"]

PATH = "round", 0


class RefusedByNodeError(Exception):
    """A node gave no answer but the kind of its reason."""


@dataclass(frozen=True)
class MaliciousServer:
    """Asks nodes as it likes.

    Attributes:
        folders: of clients whose node is elsewhere than in the federation's folder.
    """

    federation: Built
    folders: Mapping[str, Path] = field(default_factory=dict)

    def node(self, name: str) -> Node:
        folder = self.folders.get(name, self.federation.path / name)
        return Node(folder / "node.toml")

    def own(self, name: str) -> Sums:
        """Return a client's own sums, which the server must not learn."""
        member = self.node(name).member(10)
        assert member.records is not None
        d = member.records.rows(member.client.train).features.shape[1]
        return member.records.sums([member.client.train], d)

    def first_model(self) -> Params:
        """Return a model that clients may train."""
        settings = {**self.federation.settings, "engine": {"name": "reference"}}
        return build_run(Config.of(settings)).init(Streams(0))

    def update(self, name: str, model: Params) -> np.ndarray:
        """Return a client's own update, which the server must not learn."""
        node = self.node(name)
        request = ClientRequest("train", (model,), (True,), PATH, {})
        return numbers_of_update(node.member(10).train(request, 0), 1)

    def ask(self, question: Question, letter: bytes) -> bytes:
        outside_a_run()
        request = replace(question.request, letters={question.name: letter})
        sent = make_message(replace(question, request=request), 1, 60.0)
        sent.metadata.__dict__["_message_id"] = "1"
        reply = answer_message(sent, lambda: self.node(question.name))
        if failed := json.loads(str(reply.content["covey"]["json"]))["failed"]:
            raise RefusedByNodeError(failed)
        return letter_in(reply.content, 1e9)

    def summing(
        self,
        names: Sequence[str],
        run: str = "first",
        classes: int = 10,
        of: str = "sums",
        model: Params | None = None,
    ) -> "Summing":
        """Begin a sum, of which nobody has been asked yet."""
        records = self.node(names[0]).member(10).records
        d = len(self.own(names[0]).targets) if records is not None else 0
        model = model or {}
        numbers = sum(value.numel() for value in model.values())
        length = {"sums": d * (d + 1) // 2 + d * classes, "updates": 1 + numbers}
        cohort = tuple(client(name, NO_EXAMPLES) for name in sorted(names))
        request = ClientRequest(
            "masked",
            (model,) * bool(model),
            (True,) * bool(model),
            PATH,
            width=d,
            features="" if records is None else records.fingerprint,
            sums=SumStep("keys", length.get(of, 1), of),  # type: ignore[arg-type]
        )
        question = Question(__version__, run, "token", "", request, classes)
        group = GroupSum.begin(cohort, Terms.new(length.get(of, 1), 3))
        return Summing(self, group, question)


@dataclass
class Summing:
    """One sum, between two steps."""

    server: MaliciousServer
    group: GroupSum
    question: Question

    def ask(self, name: str, letter: bytes) -> bytes:
        """Ask one node for the step that is next."""
        played = self.group.round
        context = ClientContext(assigned=0, session=played.terms.session.hex())
        request = self.question.request
        assert request.sums is not None
        step = replace(request.sums, step=played.step)
        request = replace(request, contexts={name: context}, sums=step)
        return self.server.ask(replace(self.question, name=name, request=request), letter)

    def until(self, step: str) -> "Summing":
        """Play up to a step, which nobody is asked for yet."""
        while self.group.letters and self.group.round.step != step:
            letters = self.group.letters
            handles = {member.name: member.handle for member in self.group.cohort}
            answers = {handles[n]: self.ask(n, letter) for n, letter in letters.items()}
            self.group = self.group.taking(answers).closed()
        assert not self.group.given_up, self.group.given_up
        return self

    def opened(self) -> np.ndarray:
        """Play to the end, and return the numbers."""
        values = self.until("over").group.values
        assert values is not None
        return values

    def sums(self) -> Sums:
        """Play to the end, and return the sums of ten classes."""
        d = self.question.request.width
        sums = Sums.of_numbers(self.opened(), d, self.question.classes)
        return Sums(sums.gram, sums.targets[:, :10].clone())


def head(d: int) -> Params:
    return {"head.weight": torch.zeros(10, d - 1), "head.bias": torch.zeros(10)}
