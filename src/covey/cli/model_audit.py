"""`covey audit --model`: an audit of a model, without a run."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import covey
from covey.cli.app import FAILED_CHECK, stated
from covey.cli.progress import console
from covey.cli.tables import tabled
from covey.errors import ConfigError

if TYPE_CHECKING:
    from covey.auditor import ModelAudit

__all__ = [
    "MembersOption",
    "ModelOption",
    "ModelRequest",
    "NonMembersOption",
    "OutOption",
    "TrainOption",
    "WeightsOption",
    "audit_any_model",
    "check_model_options",
]

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
        help="With --model: its state dict, as .safetensors, or as .pt with tensors "
        "alone."
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
    Path | None,
    typer.Option(help="With --model: a folder for audit.html and audit.json."),
]

REFERENCES = 8
HEADS = (
    "attack",
    "AUC",
    "balanced accuracy",
    "advantage",
    "TPR at 1% FPR",
    "at 0.1%",
)


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
    asked: ModelRequest,
    attacks: list[str] | None,
    references: int | None,
    *,
    as_json: bool,
) -> None:
    """Audit a model, print what was found, and write it where that is wanted.

    Exit code 1 where there are no figures.
    """
    from covey import auditor, data, runtime

    began = time.monotonic()
    count = REFERENCES if references is None else references
    found = covey.audit_model(
        auditor.named_model(str(asked.model), asked.weights),
        data.read_client(Path(str(asked.members))),
        data.read_client(Path(str(asked.non_members))),
        auditor.named_function("--train", asked.train) if asked.train else None,
        num_references=count,
        attacks=attacks or runtime.DEFAULT_ATTACKS,
        observe=lambda n: console.print(
            f"reference {n} of {count} trained", highlight=False
        ),
    )
    told: dict[str, Any] = {
        "model": asked.model,
        **found.to_dict(),
        "seconds": round(time.monotonic() - began, 1),
        "report": _written(found, asked),
    }
    stated(told, _text(found, told), as_json=as_json)
    if found.refused:
        raise typer.Exit(FAILED_CHECK)


def _written(found: ModelAudit, asked: ModelRequest) -> str | None:
    """Write `audit.json` and `audit.html`, and return the page's path."""
    if asked.out is None:
        return None
    page = found.write_html(asked.out / "audit.html", f"Audit of {asked.model}")
    (asked.out / "audit.json").write_text(found.to_json(), encoding="utf-8")
    return str(page)


def _text(found: ModelAudit, told: dict[str, Any]) -> str:
    from covey.auditor import rows

    lines = [f"{found.verdict}."]
    if found.attacks:
        lines.append(tabled(HEADS, (tuple(row.values()) for row in rows(found))))
    lines += [f"{name}: {why}" for name, why in found.withheld.items()]
    lines += [f"unknown: {why}" for why in told["unknown"]]
    lines += [f"report: {told['report']}"] if told["report"] else []
    return "\n".join(lines)
