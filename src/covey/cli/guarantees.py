"""`covey guarantee`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from covey.base.errors import ConfigError
from covey.cli.app import JsonOption, app, stated
from covey.cli.inspect import tabled
from covey.unlearning.participation import settings_below

if TYPE_CHECKING:
    from covey.dp.run_guarantees import NoisePlan


SIGMA = "The noise: the paper's sigma, else the multiplier z of its mechanism."
COORDINATES = "Parameters of the model; lenet5 has 107786, linear on MNIST 7850."
SAMPLING = "Chance of a client per round, or of an example per step."
HOLDS_IF = (
    "every update lies in a ball of radius Delta in L2: the paper keeps none there",
    "who is in which set depends on no update: with MDAV or k-means it does",
    "nobody can recompute the noise (secrets.source = 'os')",
)
MOSTLY_NOISE = 5
"""Times the largest update's norm, from which on a released model is mostly noise."""


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
    as_json: JsonOption = False,
) -> None:
    """Say what settings promise before a run is played.

    --noise: the epsilon that noise delivers, or the noise for an epsilon.
    --deniability: exact where each round's sets are drawn at random
    (merge.partition = public-random); for sets of similar models it is a guide.
    """
    from covey.dp.run_guarantees import NoisePlan

    if deniability == (noise is not None):
        raise ConfigError(
            "covey guarantee computes --deniability or the epsilon of --noise, found "
            f"{'both' if deniability else 'neither'}. Ask for one of them."
        )
    if deniability:
        told, text = _deniability(clients, rounds, requests, target)
    else:
        _check_one_given(sigma, epsilon)
        if noise == "paper":
            told = _of_the_paper(sigma, epsilon, delta, rounds)
        else:
            assert noise is not None  # noqa: S101 - looked at above
            plan = NoisePlan(noise, rounds, delta, set_size, sets, clients, sampling, steps)
            told = _of_a_run(plan, sigma, epsilon, radius, coordinates)
        text = _read(told)
    stated(told, text, as_json=as_json)


def _check_one_given(sigma: float | None, epsilon: float | None) -> None:
    given = [each for each in (sigma, epsilon) if each is not None]
    if len(given) != 1 or given[0] == 0:
        raise ConfigError(
            "covey guarantee --noise takes either the noise (--sigma) or the epsilon to "
            f"reach (--epsilon), above 0, found sigma = {sigma} and epsilon = {epsilon}. "
            "Give one of them: no noise is no guarantee."
        )


def _of_the_paper(
    sigma: float | None, epsilon: float | None, delta: float, rounds: int
) -> dict[str, Any]:
    """Return what Theorem 1 claims for a sigma, and what its algorithm delivers."""
    from covey.dp.accountant import claimed_epsilon, claimed_sigma, delivered_epsilon

    noise = sigma or claimed_sigma(epsilon or 0.0, delta, rounds)
    cost = delivered_epsilon(noise, delta, rounds)
    return {
        "noise": "paper",
        "sigma": noise,
        "rounds": rounds,
        "delta": delta,
        "epsilon_claimed": claimed_epsilon(noise, delta, rounds),
        "epsilon": cost.epsilon if cost else None,
        "noise_multiplier": noise / 2,
        "relation": "one client's update is replaced by another in the ball",
        "covers": ["every representative of every round"],
        "does_not_cover": [
            "which clients are in which set, and how far apart they are",
            "the server, which saw every update before there was noise",
        ],
        "holds_if": [*HOLDS_IF],
    }


def _of_a_run(
    plan: NoisePlan, sigma: float | None, epsilon: float | None, radius: float, coordinates: int
) -> dict[str, Any]:
    """Return what a mechanism guarantees, beside the size of its noise."""
    from covey.dp.run_guarantees import adversary_views, forecast, multiplier, noise_size

    z = sigma or multiplier(plan, epsilon or 0.0)
    told = asdict(forecast(plan, z))
    if plan.noise == "sound":
        told["views"] = dict(adversary_views(plan, z))
    if plan.noise != "record":  # whose noise many steps and clients average
        size = noise_size(plan, z, radius, coordinates)
        told |= {"noise_norm": size.noise, "update_norm": size.update}
    return {
        "noise": plan.noise,
        "rounds": plan.rounds,
        "epsilon_claimed": epsilon,
        **told,
        "noise_multiplier": z,
    }


def _deniability(
    clients: int, rounds: int, requests: int, target: float
) -> tuple[dict[str, Any], str]:
    if requests > clients:
        raise ConfigError(
            f"--requests is how many of the --clients ask to leave, so at most {clients}, "
            f"found {requests}. Lower it."
        )
    rows = settings_below(target, clients, rounds, requests)
    told = {
        "clients": clients,
        "rounds": rounds,
        "requests": requests,
        "target": target,
        "holds_if": [
            "every client takes part in every round, in one cluster",
            "sets are drawn at random, independently in every round",
            "who asks to leave is random",
        ],
        "settings": [asdict(row) for row in rows],
    }
    heads = ("k", "x", "sets per round", "probability of a replay", "below the target")
    cells = [
        (
            str(row.k),
            str(row.x),
            str(row.sets),
            f"{row.rollback_probability:.4f}",
            "yes" if row.fine else "no",
        )
        for row in rows
    ]
    return told, f"{tabled(heads, cells)}\n\nif\n{_listed(told['holds_if'])}"


def _read(told: dict[str, Any]) -> str:
    """Return a guarantee as a reader takes it in: the number, then what it is about."""
    if told["epsilon"] is None:
        number = f"No guarantee: {told['reason']}."
    else:
        number = (
            f"epsilon {told['epsilon']:.3f} at delta {told['delta']:g} over "
            f"{told['rounds']} rounds, with noise multiplier "
            f"{told['noise_multiplier']:.3f}."
        )
    parts = [number]
    if told["noise"] == "paper":
        parts.append(
            f"Theorem 1 claims epsilon {told['epsilon_claimed']:.3f} for sigma "
            f"{told['sigma']:.3f}. A run with merge.noise = 'paper' reports none."
        )
    if "noise_norm" in told:
        ratio = told["noise_norm"] / told["update_norm"]
        parts.append(
            f"Each released model carries noise of norm {told['noise_norm']:.3g}, "
            f"{ratio:.3g} times the largest norm of one update"
            + (
                ": mostly noise. Take more clients or fewer parameters."
                if ratio > MOSTLY_NOISE
                else "."
            )
        )
    parts += [f"Neighbours: {told['relation']}."]
    if "views" in told:
        rows = [(name, "none" if e is None else f"{e:.3f}") for name, e in told["views"].items()]
        parts.append(tabled(("if an adversary sees", "epsilon"), rows))
    parts += [
        f"covers\n{_listed(told['covers'])}",
        f"does not cover\n{_listed(told['does_not_cover'])}",
        f"holds if\n{_listed(told['holds_if'])}",
    ]
    return "\n\n".join(parts)


def _listed(lines: Sequence[str]) -> str:
    return "\n".join(f"- {each}" for each in lines)
