"""`covey audit`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

import covey
from covey import report, runtime
from covey.cli.app import FAILED_CHECK, JsonOption, app, stated
from covey.cli.model_audit import (
    MembersOption,
    ModelOption,
    ModelRequest,
    NonMembersOption,
    OutOption,
    TrainOption,
    WeightsOption,
    audit_any_model,
    check_model_options,
)
from covey.cli.progress import console, shown
from covey.cli.tables import tabled
from covey.errors import ConfigError

__all__ = ["audit"]

PARTICIPATION = "participation"

REFERENCES = 4

GAME_VIEW = (
    "The adversary, in a simulation, holds all examples of a client and every final "
    "cluster model, and says whether the client took part. Reserved clients are made of "
    "matched non-members. Intervals (95%) are over clients. A figure near 0.5 says that "
    "this adversary finds nothing, not that nothing is there."
)


@app.command()
def audit(
    run: Annotated[
        Path | None, typer.Argument(help="The folder of a finished run; or --model.")
    ] = None,
    attack: Annotated[
        list[str] | None,
        typer.Option(
            "--attack",
            help="loss, shokri, lira, rmia (these four are the default), entropy, "
            "plain-entropy, lira-offline, rmia-offline, fedmia, source, weights (of ridge "
            "heads), or your own as "
            "package.module:function; repeatable.",
        ),
    ] = None,
    references: Annotated[
        int | None,
        typer.Option(
            help="Federations played again per cluster (default 4), or models that "
            "--train trains (default 8); at least 2."
        ),
    ] = None,
    game: Annotated[
        str | None,
        typer.Option(
            help="participation: instead of attacking records, ask of whole clients "
            "whether they took part."
        ),
    ] = None,
    control: Annotated[
        bool,
        typer.Option(
            "--control",
            help="With --game: play the run once more without some of the participants, "
            "and ask about them again.",
        ),
    ] = False,
    epsilon: Annotated[
        bool,
        typer.Option(
            "--epsilon",
            help="Instead: put the run's noise to the test, one release at a time.",
        ),
    ] = False,
    model: ModelOption = None,
    members: MembersOption = None,
    non_members: NonMembersOption = None,
    weights: WeightsOption = None,
    train: TrainOption = None,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Attack every final cluster model, with its members against matched non-members.

    With --model, any classifier of torch, without a run. A model that diverged has no
    figures: its reason says so, and the exit code is 1.
    """
    asked = ModelRequest(model, members, non_members, weights, train, out)
    runs_alone = game is not None or control or epsilon
    check_model_options(run, asked, references, runs_alone)
    if run is None:
        audit_any_model(asked, attack, references, as_json=as_json)
        return
    _check_game(game, attack, control)
    if epsilon:
        if game is not None or attack:
            raise ConfigError(
                "--epsilon tests the noise instead of attacking models, found --attack or "
                "--game beside it. Give two commands."
            )
        _test_noise(run, as_json)
        return
    if game is not None:
        _play(run, control, as_json)
        return

    count = REFERENCES if references is None else references

    def observe(cluster: int, played: int) -> None:
        line = f"cluster {cluster}: reference {played} of {count} played"
        console.print(line, highlight=False)

    began = time.monotonic()
    answer = covey.audit(run, attack or runtime.DEFAULT_ATTACKS, count, observe=observe)
    page = run / "audit" / "audit.html"
    told = {
        "run": str(run),
        **answer,
        "seconds": round(time.monotonic() - began, 1),
        "report": str(page),
    }
    stated(told, f"{_text(told)}\nreport: {page}", as_json=as_json)
    from covey.membership import DIVERGED

    if any(each["reason"].startswith(DIVERGED) for each in told["clusters"]):
        raise typer.Exit(FAILED_CHECK)


def _check_game(game: str | None, attack: list[str] | None, control: bool) -> None:
    if game not in (None, PARTICIPATION):
        raise ConfigError(f"--game takes {PARTICIPATION}, found {game!r}.")
    if game is None and control:
        raise ConfigError(
            f"--control belongs to a game, and there is none. Add --game {PARTICIPATION}."
        )
    if game is not None and attack:
        raise ConfigError(
            f"--game is played instead of the attacks, found --attack {attack[0]} beside "
            f"it. Give two commands."
        )


def _test_noise(run: Path, as_json: bool) -> None:
    """Print what canaries say of one release; exit code 1 if they refute its epsilon."""
    began = time.monotonic()
    found = covey.audit_epsilon(run)
    told = {
        "run": str(run),
        **found,
        "seconds": round(time.monotonic() - began, 1),
    }
    refuted = found["refuted"]
    verdict = (
        "nothing speaks against what is accounted for"
        if found["holds"]
        else "REFUTED: the code delivers less than is accounted for"
    )
    text = (
        f"One release of {found['mechanism']} noise, {refuted['draws']} times with a "
        f"canary and as often without:\nepsilon is accounted for as "
        f"{found['accounted']:.3f} at delta {found['delta']:g}; all below "
        f"{refuted['epsilon']:.3f} is refuted.\n{verdict}"
    )
    stated(told, text, as_json=as_json)
    if not found["holds"]:
        raise typer.Exit(FAILED_CHECK)


def _play(run: Path, control: bool, as_json: bool) -> None:
    began = time.monotonic()
    if control:
        with shown(f"{run.name}, the control") as observe:
            found = covey.game(run, control=True, observe=observe)
    else:
        found = covey.game(run)
    told = {
        "run": str(run),
        "view": GAME_VIEW,
        "game": found,
        "seconds": round(time.monotonic() - began, 1),
    }
    stated(told, _game_text(found), as_json=as_json)


def _game_text(game: Mapping[str, Any]) -> str:
    """Return who was asked about, with AUCs against reserved clients."""
    asked = [("participants", game["participants"], game)]
    if left := game["left"]:
        asked.append(("left", left["clients"], left))
    if control := game["control"]:
        n, met = control["clients"], control["audited"]
        asked.append(("some participants", n, met))
        asked.append(("the same, in a run that never met them", n, control))
    heads = ("who", "clients", f"AUC against {game['reserved']:,} reserved clients")
    rows = [
        (who, f"{n:,}", f"{one['auc']:.3f} [{one['low']:.3f}, {one['high']:.3f}]")
        for who, n, one in asked
    ]
    reason = game["left_reason"]
    missing = [f"left: {reason}"] if reason else []
    return "\n".join([tabled(heads, rows), *missing, GAME_VIEW])


def _exposed(cluster: Mapping[str, Any]) -> list[str]:
    """Return a line on the most exposed members, in counts."""
    found = cluster["exposed"]
    if found is None:
        return []
    held = found["held"]
    return [
        f"cluster {cluster['cluster']}: the most exposed 1% are {found['records']:,} "
        f"records, of {len(held):,} clients, at most {max(held):,} of one; an attack is "
        f"right on them with a chance of {found['exposure']:.3f} (on all members: "
        f"{found['everybody']:.3f})"
    ]


def _text(told: Mapping[str, Any]) -> str:
    """Return the overall figures as a table, with 95% intervals, and what is missing."""
    heads = (
        "cluster",
        "attack",
        "balanced accuracy",
        "AUC",
        "TPR at 1% FPR",
        "at 0.1%",
    )
    lines = [tabled(heads, (tuple(row.values()) for row in report.audit_rows(told)))]
    for each in told["clusters"]:
        reasons = [*filter(None, [each["reason"]]), *each["unknown"]]
        lines += [f"cluster {each['cluster']}: {reason}" for reason in reasons]
        lines += _exposed(each)
    if found := told["source"]:
        lines.append(
            f"source: {found['accuracy']:.3f}±{found['standard_error']:.3f} of the "
            f"members are claimed by their own cluster's model (always the largest "
            f"cluster: {found['prior_accuracy']:.3f})"
        )
    return "\n".join(lines)
