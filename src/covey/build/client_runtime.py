"""A client's own half of a round, where the clients are really apart."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from covey.algorithms import (
    Call,
    KnownRisk,
    Memory,
    ServerState,
    Slip,
    due_to_judge,
    evaluate_with,
    fresh_state,
    train_with,
    with_findings,
)
from covey.build.algorithms import choosing
from covey.clustering import Ballot, stay_settled
from covey.config import Config
from covey.data import Client, Examples
from covey.engine import Engine, ScoringJob
from covey.membership import loss_counts, self_judge
from covey.params import subtract
from covey.rng import Streams
from covey.types import Params

__all__ = ["Chosen", "Member"]

Known = tuple[KnownRisk | None, ...]


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a client decided, and what it rests on; only the cluster is sent.

    Attributes:
        known: what it knows of each cluster's risk: from the server, or found by itself.
    """

    cluster: int
    known: Known

    def above(self, risk_threshold: float) -> bool | None:
        """Say whether the risk is above what the client accepts; None: unknown."""
        known = self.known[self.cluster] if self.known else None
        return None if known is None else known.risk > risk_threshold


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """One client with its own examples, preference and seed.

    Attributes:
        config: the federation's settings, as this client has them.
        classes: how many there are.
        seed: all that the client draws follows from it.
    """

    client: Client
    config: Config
    engine: Engine
    classes: int
    seed: int

    def choose(self, call: Call, slip: Slip, found: Known = ()) -> Chosen:
        """Take a cluster: the given one, or the best by the method's rule (line 12).

        Args:
            call: what the server asks.
            slip: what it tells this client of itself.
            found: what the client found out about the risks in earlier rounds.
        """
        known = self._judged(call, slip, found) if self._judges else slip.risks
        if slip.given is not None:
            return Chosen(slip.given, known)
        streams = self._streams(call)
        method = self.config.method
        evaluate = evaluate_with(self.engine, method.select_on, method.select_examples)
        losses = evaluate(call.models, (self.client,), streams)
        if call.task == "place":
            return Chosen(int(losses.nan_to_num(nan=torch.inf).argmin()), known)
        ballot = self._ballot(call, replace(slip, risks=known), losses, streams)
        picked = choosing(self.config, self.classes).select(ballot)
        return Chosen(int(stay_settled(ballot, torch.as_tensor(picked))[0]), known)

    def train(
        self,
        call: Call,
        cluster: int,
        own: Callable[[Call, int], Params] | None = None,
    ) -> tuple[Params, float]:
        """Return what the client's training adds to a model, and its weight (line 14).

        `own` trains in place of the settings' recipe: it returns the local model.
        """
        weights = self.config.merge.weights
        if own is not None:
            weight = 1.0 if weights == "equal" else float(len(self.client.train))
            return subtract(own(call, cluster), call.models[cluster]), weight
        train = train_with(self.engine, call.recipe, weights)
        streams = self._streams(call)
        where = {self.client.handle: cluster}
        (made,) = train(call.models, (self.client,), where, streams)
        return made.update, made.weight

    def count(
        self, call: Call, cluster: int
    ) -> tuple[Int[ndarray, "folds bins"], Int[ndarray, "folds bins"]]:
        """Return counts of the losses on the client's members, and on its holdout."""
        streams = self._streams(call)

        def counted(examples: Examples) -> Int[ndarray, "folds bins"]:
            (scored,) = self.engine.score([ScoringJob(call.models[cluster], examples)])
            at = streams.at("folds", len(examples), self.client.name)
            return loss_counts(scored.losses.double().numpy(), at.generator())

        return counted(self.client.train), counted(self.client.holdout)

    def accuracy(self, params: Params) -> float | None:
        """Return a model's accuracy on the client's holdout; None without one."""
        holdout = self.client.holdout
        if not len(holdout):
            return None
        (scored,) = self.engine.score([ScoringJob(params, holdout)])
        return None if scored.correct is None else float(scored.correct.mean())

    def _streams(self, call: Call) -> Streams:
        """Return the client's draws for a question.

        Hidden ones are drawn anew for every answer where secrets are the system's: a round
        that is played again has the same path, and the same noise in two answers cancels.
        """
        anew = self.config.secrets.source == "os"
        return Streams(self.seed, call.path, secrets.randbits(256) if anew else None)

    @property
    def _judges(self) -> bool:
        return self.config.redteam.source == "client"

    def _judged(self, call: Call, slip: Slip, found: Known) -> Known:
        """Return what the client knows now; it measures when it is time, and at the end."""
        if call.task not in ("choose", "settle") or call.round_index == 0:
            return found
        every, own = self.config.redteam.every, (self.client,)
        state = self._state(call, slip, found)
        due = own if call.task == "settle" else due_to_judge(state, own, every)
        streams = self._streams(call)
        judged = self_judge(self.engine)(call.models, due, streams)
        after = with_findings(state, judged, every)
        return after.memory.risks.get(self.client.handle, ())

    def _state(self, call: Call, slip: Slip, found: Known) -> ServerState:
        """Return the part of a state that is this client's own."""
        me = self.client.handle
        risks: Mapping[str, Known] = {me: found} if found else {}
        return replace(
            fresh_state(call.models),
            round_index=call.round_index,
            assignment={me: slip.current} if slip.current >= 0 else {},
            memory=Memory(risks=risks),
        )

    def _ballot(
        self,
        call: Call,
        slip: Slip,
        losses: Float[Tensor, "clients clusters"],
        streams: Streams,
    ) -> Ballot:
        preference, nan = self.client.preference, float("nan")
        known = slip.risks or (None,) * len(call.models)
        return Ballot(
            losses=losses,
            risks=torch.tensor([[k.risk if k else nan for k in known]]),
            risk_errors=torch.tensor([[k.standard_error if k else nan for k in known]]),
            risk_weights=torch.tensor([preference.risk_weight]),
            risk_thresholds=torch.tensor([preference.risk_threshold]),
            offered=torch.tensor(call.offered),
            current=torch.tensor([slip.current]),
            settling=torch.tensor([slip.settling]),
            elsewhere=torch.zeros(len(call.models), dtype=torch.int64),
            prices=torch.zeros(len(call.models)),
            streams=streams,
            own=(streams.at("choice", self.client.name),),
        )
