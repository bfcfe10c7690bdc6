"""`covey audit`, of a run or of any model, and `covey records`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import covey
from covey.base.errors import ConfigError
from covey.cli.answer import JsonOption, tabled
from covey.cli.app import FAILED_CHECK, app, console, stated
from covey.cli.runs import shown

if TYPE_CHECKING:
    from covey.auditor.result import ModelAudit
    from covey.runs.own_records import ExposedRecords


ModelOption = Annotated[
    str | None,
    typer.Option(
        help="In place of a run: package.module:factory, a function that returns a "
        "classifier of torch."
    ),
]
MembersOption = Annotated[
    Path | None,
    typer.Option(
        help="With --model: the records that it was trained on, an .npz file with "
        "arrays x and y (or inputs and labels)."
    ),
]
NonMembersOption = Annotated[
    Path | None, typer.Option(help="With --model: records that it never saw.")
]
WeightsOption = Annotated[
    Path | None,
    typer.Option(
        help="With --model: its state dict, as .safetensors, or as .pt with tensors alone."
    ),
]
TrainOption = Annotated[
    str | None,
    typer.Option(
        help="With --model: package.module:function, which takes (examples, seed) and "
        "returns a model trained like it; LiRA, RMIA and Shokri need it."
    ),
]
OutOption = Annotated[
    Path | None, typer.Option(help="With --model: a folder for audit.html and audit.json.")
]

MODEL_REFERENCES = 8
HEADS = ("attack", "AUC", "balanced accuracy", "advantage", "TPR at 1% FPR", "at 0.1%")


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What is said of a model in place of a run; each is an option of its name."""

    model: str | None
    members: Path | None
    non_members: Path | None
    weights: Path | None
    train: str | None
    out: Path | None


def check_model_options(
    run: Path | None, asked: ModelRequest, references: int | None, others: bool
) -> None:
    """Refuse a run and a model together, neither, and what goes with the other alone.

    Args:
        run: the folder, if one is named.
        asked: what is said of a model.
        references: how many, if that is said.
        others: whether there are options that need a run.

    Raises:
        ConfigError: naming what to give.
    """
    alone = (asked.members, asked.non_members, asked.weights, asked.train, asked.out)
    if asked.model is None and run is None:
        raise ConfigError(
            "covey audit takes the folder of a run, or --model, found neither. Name one: "
            "covey audit runs/NAME, or covey audit --model package.module:factory "
            "--members A.npz --non-members B.npz."
        )
    if asked.model is None and any(alone):
        raise ConfigError(
            "--members, --non-members, --weights, --train and --out belong to --model, "
            "and a run is audited with its own data. Leave them out, or name a model in "
            "place of the run."
        )
    if asked.model is not None and (run is not None or others):
        raise ConfigError(
            f"covey audit takes a run or --model, found --model {asked.model} beside "
            f"{run or '--game, --control or --epsilon, which need a run'}. Give two "
            f"commands."
        )
    if asked.model is not None and not (asked.members and asked.non_members):
        raise ConfigError(
            "--model needs --members and --non-members, one .npz file each with arrays x "
            "and y, or inputs and labels. Name both."
        )
    if asked.model is not None and references is not None and asked.train is None:
        raise ConfigError(
            "--references says how many models --train trains, and there is no --train. "
            "Add --train package.module:function, a function (examples, seed) that "
            "returns a model, or leave --references out."
        )


def audit_any_model(
    asked: ModelRequest, attacks: list[str] | None, references: int | None, *, as_json: bool
) -> None:
    """Audit a model, print what was found, and write it where that is wanted.

    Exit code 1 where there are no figures.
    """
    from covey.auditor.records import named_function, named_model
    from covey.data.arrays import read_client
    from covey.runtime.auditing import DEFAULT_ATTACKS

    began = time.monotonic()
    count = MODEL_REFERENCES if references is None else references
    found = covey.audit_model(
        named_model(str(asked.model), asked.weights),
        read_client(Path(str(asked.members))),
        read_client(Path(str(asked.non_members))),
        named_function("--train", asked.train) if asked.train else None,
        num_references=count,
        attacks=attacks or DEFAULT_ATTACKS,
        observe=lambda n: console.print(f"reference {n} of {count} trained", highlight=False),
    )
    told: dict[str, Any] = {
        "model": asked.model,
        **found.to_dict(),
        "seconds": round(time.monotonic() - began, 1),
        "report": _written(found, asked),
    }
    stated(told, _model_text(found, told), as_json=as_json)
    if found.refused:
        raise typer.Exit(FAILED_CHECK)


def _written(found: ModelAudit, asked: ModelRequest) -> str | None:
    """Write `audit.json` and `audit.html`, and return the page's path."""
    if asked.out is None:
        return None
    page = found.write_html(asked.out / "audit.html", f"Audit of {asked.model}")
    (asked.out / "audit.json").write_text(found.to_json(), encoding="utf-8")
    return str(page)


def _model_text(found: ModelAudit, told: dict[str, Any]) -> str:
    from covey.auditor.result import rows

    lines = [f"{found.verdict}."]
    if found.attacks:
        lines.append(tabled(HEADS, (tuple(row.values()) for row in rows(found))))
    lines += [f"{name}: {why}" for name, why in found.withheld.items()]
    lines += [f"unknown: {why}" for why in told["unknown"]]
    lines += [f"report: {told['report']}"] if told["report"] else []
    return "\n".join(lines)


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
            "--epsilon", help="Instead: put the run's noise to the test, one release at a time."
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
    from covey.runtime.auditing import DEFAULT_ATTACKS

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
    answer = covey.audit(run, attack or DEFAULT_ATTACKS, count, observe=observe)
    page = run / "audit" / "audit.html"
    told = {
        "run": str(run),
        **answer,
        "seconds": round(time.monotonic() - began, 1),
        "report": str(page),
    }
    stated(told, f"{_text(told)}\nreport: {page}", as_json=as_json)
    from covey.base.risk import DIVERGED

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
    told = {"run": str(run), **found, "seconds": round(time.monotonic() - began, 1)}
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
    from covey.report.page import audit_rows

    heads = ("cluster", "attack", "balanced accuracy", "AUC", "TPR at 1% FPR", "at 0.1%")
    lines = [tabled(heads, (tuple(row.values()) for row in audit_rows(told)))]
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


@app.command()
def records(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or of a client's own node.")],
    client: Annotated[str, typer.Argument(help="Of a run: the client's name.")] = "",
    share: Annotated[float, typer.Option(help="Which part of its records: at least one.")] = 0.02,
    page: Annotated[
        Path | None, typer.Option("--page", help="Write them as an HTML page for the client, too.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List a client's most exposed records, on the machine where their losses lie.

    Needs train.keep_losses. Nothing else is written, and nobody is told.
    """
    from covey.runs.own_records import exposed_records

    found = exposed_records(run, client, share)
    more = {} if page is None else {"page": str(found.write_html(page))}
    text = "\n".join([_records_text(found), *more.values()])
    stated({**found.to_dict(), **more}, text, as_json=as_json)


def _records_text(found: ExposedRecords) -> str:
    rows = [
        (
            str(each.rank),
            str(each.place),
            *([str(each.row)] if found.rows_known else []),
            f"{each.score:.3f}",
            f"{each.first:.3f}",
            f"{each.last:.3f}",
        )
        for each in found.records
    ]
    row = ("row",) if found.rows_known else ()
    heads = ("rank", "record", *row, "score", "first loss", "last")
    return (
        f"{tabled(heads, rows)}\n"
        f"{found.client}: {len(rows)} of {found.held:,} records, by losses of "
        f"{found.rounds} rounds; half of its records score less than "
        f"{found.median_score:.3f}. The score is {found.score_told}.\n"
        f"Read from {found.kept_in}."
    )
