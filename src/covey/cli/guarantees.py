"""`covey guarantee`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from covey.base.errors import ConfigError
from covey.cli.answer import INLINE, OPTIONAL, Answer, tabled
from covey.cli.app import app
from covey.unlearning.participation import DeniabilityRow, settings_below

if TYPE_CHECKING:
    from covey.dp.current_guarantee import Guarantee


SIGMA = "The noise: the paper's sigma, else the multiplier z of its mechanism."
COORDINATES = "Parameters of the model; lenet5 has 107786, linear on MNIST 7850."
SAMPLING = "Chance of a client per round, or of an example per step."
HOLDS_IF = (
    "every update lies in a ball of radius Delta in L2: the paper keeps none there",
    "who is in which set depends on no update: with MDAV or k-means it does",
    "nobody can recompute the noise (secrets.source = 'os')",
)
NOT_FINITE = "what the algorithm delivers has no finite epsilon"
MOSTLY_NOISE = 5
"""Times the largest update's norm, from which on a released model is mostly noise."""


@dataclass(frozen=True, slots=True)
class GuaranteeOfPaper(Answer):
    """What Theorem 1 claims for a sigma, and what its algorithm delivers.

    Attributes:
        noise: `paper`.
        epsilon: that is delivered; None: no finite one.
        noise_multiplier: z of every release.
        relation: how two neighbouring sets of data differ.
        holds_if: what must be true, and what nothing enforces.
    """

    noise: str
    sigma: float
    rounds: int
    delta: float
    epsilon_claimed: float
    epsilon: float | None
    noise_multiplier: float
    relation: str
    covers: Sequence[str]
    does_not_cover: Sequence[str]
    holds_if: Sequence[str]

    def lines(self) -> Iterator[str]:
        """Yield what is delivered, and what the paper claims."""
        yield _number(self.epsilon, self.delta, self.rounds, self.noise_multiplier, NOT_FINITE)
        yield (
            f"\nTheorem 1 claims epsilon {self.epsilon_claimed:.3f} for sigma "
            f"{self.sigma:.3f}. A run with aggregation.noise = 'paper' reports none."
        )
        yield from _about(self)


@dataclass(frozen=True, slots=True)
class GuaranteeOfNoise(Answer):
    """What a mechanism guarantees, beside the size of its noise.

    Attributes:
        noise: `sound`, `client` or `record`.
        epsilon_claimed: that was asked for; None: the noise was given.
        views: epsilon by what an adversary sees, of anonymity sets.
        noise_norm: of each released model; not for `record`.
        update_norm: the largest of one update.
    """

    noise: str
    rounds: int
    epsilon_claimed: float | None
    guarantee: Guarantee = field(metadata=INLINE)
    noise_multiplier: float
    views: Mapping[str, float | None] | None = field(default=None, metadata=OPTIONAL)
    noise_norm: float | None = field(default=None, metadata=OPTIONAL)
    update_norm: float | None = field(default=None, metadata=OPTIONAL)

    def lines(self) -> Iterator[str]:
        """Yield the number, then what it is about."""
        held = self.guarantee
        yield _number(held.epsilon, held.delta, self.rounds, self.noise_multiplier, held.reason)
        if self.noise_norm is not None and self.update_norm is not None:
            ratio = self.noise_norm / self.update_norm
            much = ": mostly noise. Take more clients or fewer parameters."
            yield (
                f"\nEach released model carries noise of norm {self.noise_norm:.3g}, "
                f"{ratio:.3g} times the largest norm of one update"
                f"{much if ratio > MOSTLY_NOISE else '.'}"
            )
        yield from _about(held, self.views)


@dataclass(frozen=True, slots=True)
class Deniability(Answer):
    """Which k and x keep forced replays rare.

    Attributes:
        clients: in every round.
        requests: to leave.
        target: the probability to stay below.
        holds_if: what must be true.
    """

    clients: int
    rounds: int
    requests: int
    target: float
    holds_if: Sequence[str]
    settings: Sequence[DeniabilityRow]

    def lines(self) -> Iterator[str]:
        """Yield a row per k and x."""
        heads = ("k", "x", "sets per round", "probability of a replay", "below the target")
        rows = (
            (
                str(row.k),
                str(row.x),
                str(row.sets),
                f"{row.rollback_probability:.4f}",
                "yes" if row.fine else "no",
            )
            for row in self.settings
        )
        yield tabled(heads, rows)
        yield from ("", "if", *_listed(self.holds_if))


def _number(epsilon: float | None, delta: float, rounds: int, z: float, reason: str) -> str:
    if epsilon is None:
        return f"No guarantee: {reason}."
    return (
        f"epsilon {epsilon:.3f} at delta {delta:g} over {rounds} rounds, with noise "
        f"multiplier {z:.3f}."
    )


def _about(
    held: GuaranteeOfPaper | Guarantee, views: Mapping[str, float | None] | None = None
) -> Iterator[str]:
    """Yield what an epsilon is about: no number stands without it."""
    yield f"\nNeighbours: {held.relation}."
    if views is not None:
        rows = [(name, "none" if e is None else f"{e:.3f}") for name, e in views.items()]
        yield "\n" + tabled(("if an adversary sees", "epsilon"), rows)
    yield from ("\ncovers", *_listed(held.covers))
    yield from ("\ndoes not cover", *_listed(held.does_not_cover))
    yield from ("\nholds if", *_listed(held.holds_if))


def _listed(sentences: Sequence[str]) -> Iterator[str]:
    return (f"- {each}" for each in sentences)


@app.command()
def guarantee(
    noise: Annotated[
        Literal["paper", "sound", "client", "record"] | None,
        typer.Option(help="Whose epsilon? The paper's theorem, or a mechanism's."),
    ] = None,
    sigma: Annotated[float | None, typer.Option(min=0, help=SIGMA)] = None,
    epsilon: Annotated[
        float | None, typer.Option(min=0, help="Find the noise for this epsilon.")
    ] = None,
    delta: Annotated[float, typer.Option(min=1e-12, max=0.5)] = 1e-5,
    set_size: Annotated[int, typer.Option(min=1, help="k, with --noise sound.")] = 6,
    sets: Annotated[int, typer.Option(min=1, help="With --noise sound.")] = 1,
    sampling: Annotated[float, typer.Option(min=1e-6, max=1, help=SAMPLING)] = 1.0,
    steps: Annotated[int, typer.Option(min=1, help="Per round, of a client.")] = 1,
    radius: Annotated[float, typer.Option(min=0, help="Delta, or the clip.")] = 1.0,
    coordinates: Annotated[int, typer.Option(min=1, help=COORDINATES)] = 61_706,
    deniability: Annotated[
        bool, typer.Option("--deniability", help="Which k and x keep forced replays rare?")
    ] = False,
    clients: Annotated[int, typer.Option(min=2, help="In every round.")] = 50,
    rounds: Annotated[int, typer.Option(min=1)] = 50,
    requests: Annotated[int, typer.Option(min=0, help="Who asks to leave.")] = 10,
    target: Annotated[
        float, typer.Option(min=0, max=1, help="The probability to stay below.")
    ] = 0.05,
) -> GuaranteeOfPaper | GuaranteeOfNoise | Deniability:
    """Say what settings promise before a run is played.

    --noise: the epsilon that noise delivers, or the noise for an epsilon.
    --deniability: exact where each round's sets are drawn at random
    (aggregation.partition = public-random); for sets of similar models it is a guide.
    """
    if deniability == (noise is not None):
        raise ConfigError(
            "covey guarantee computes --deniability or the epsilon of --noise, found "
            f"{'both' if deniability else 'neither'}. Ask for one of them."
        )
    if deniability:
        return _deniability(clients, rounds, requests, target)
    chosen = [each for each in (sigma, epsilon) if each is not None]
    if len(chosen) != 1 or chosen[0] == 0:
        raise ConfigError(
            "covey guarantee --noise takes either the noise (--sigma) or the epsilon to "
            f"reach (--epsilon), above 0, found sigma = {sigma} and epsilon = {epsilon}. "
            "Give one of them: no noise is no guarantee."
        )
    if noise == "paper" or noise is None:
        return _of_the_paper(sigma, epsilon, delta, rounds)
    from covey.dp.run_guarantees import NoisePlan, adversary_views, forecast, multiplier, noise_norm

    plan = NoisePlan(noise, rounds, delta, set_size, sets, clients, sampling, steps)
    z = sigma or multiplier(plan, epsilon or 0.0)
    averaged = noise == "record"  # of its noise, many steps and clients make an average
    return GuaranteeOfNoise(
        noise=noise,
        rounds=rounds,
        epsilon_claimed=epsilon,
        guarantee=forecast(plan, z),
        noise_multiplier=z,
        views=dict(adversary_views(plan, z)) if noise == "sound" else None,
        noise_norm=None if averaged else noise_norm(plan, z, radius, coordinates),
        update_norm=None if averaged else radius,
    )


def _of_the_paper(
    sigma: float | None, epsilon: float | None, delta: float, rounds: int
) -> GuaranteeOfPaper:
    from covey.dp.accountant import claimed_epsilon, claimed_sigma, delivered_epsilon

    noise = sigma or claimed_sigma(epsilon or 0.0, delta, rounds)
    cost = delivered_epsilon(noise, delta, rounds)
    return GuaranteeOfPaper(
        noise="paper",
        sigma=noise,
        rounds=rounds,
        delta=delta,
        epsilon_claimed=claimed_epsilon(noise, delta, rounds),
        epsilon=cost.epsilon if cost else None,
        noise_multiplier=noise / 2,
        relation="one client's update is replaced by another in the ball",
        covers=("every representative of every round",),
        does_not_cover=(
            "which clients are in which set, and how far apart they are",
            "the server, which saw every update before there was noise",
        ),
        holds_if=HOLDS_IF,
    )


def _deniability(clients: int, rounds: int, requests: int, target: float) -> Deniability:
    if requests > clients:
        raise ConfigError(
            f"--requests is how many of the --clients ask to leave, so at most {clients}, "
            f"found {requests}. Lower it."
        )
    holds_if = (
        "every client takes part in every round, in one cluster",
        "sets are drawn at random, independently in every round",
        "who asks to leave is random",
    )
    rows = settings_below(target, clients, rounds, requests)
    return Deniability(clients, rounds, requests, target, holds_if, rows)
