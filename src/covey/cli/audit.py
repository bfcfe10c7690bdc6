"""`covey audit`, of a run or of any model, and `covey records`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import covey
from covey.base.errors import ConfigError
from covey.cli.answer import HIDDEN, INLINE, OPTIONAL, Answer, tabled
from covey.cli.app import FAILED_CHECK, app, console
from covey.cli.progress import shown

if TYPE_CHECKING:
    from covey.auditor.result import ModelAudit
    from covey.runs.own_records import ExposedRecords


PARTICIPATION = "participation"

REFERENCES = 4
MODEL_REFERENCES = 8

GAME_VIEW = (
    "The adversary, in a simulation, holds all examples of a client and every final "
    "cluster model, and says whether the client took part. Reserved clients are made of "
    "matched non-members. Intervals (95%) are over clients. A figure near 0.5 says that "
    "this adversary finds nothing, not that nothing is there."
)


@dataclass(frozen=True, slots=True)
class RunAudited(Answer):
    """An audit of a run's final models.

    Attributes:
        report: the page.
    """

    run: Path
    audit: Mapping[str, Any] = field(metadata=INLINE)
    seconds: float
    report: Path

    @property
    def exit_code(self) -> int:
        """Return 1 if a model diverged."""
        diverged = any(each["diverged"] for each in self.audit["clusters"])
        return FAILED_CHECK if diverged else 0

    def lines(self) -> Iterator[str]:
        """Yield the overall figures with 95% intervals, and what is missing."""
        from covey.report.page import audit_rows

        heads = ("cluster", "attack", "balanced accuracy", "AUC", "TPR at 1% FPR", "at 0.1%")
        yield tabled(heads, (tuple(row.values()) for row in audit_rows(self.audit)))
        for each in self.audit["clusters"]:
            for reason in filter(None, (each["reason"], *each["unknown"])):
                yield f"cluster {each['cluster']}: {reason}"
            if (exposed := each["exposed"]) is not None:
                held = exposed["held"]
                yield (
                    f"cluster {each['cluster']}: the most exposed 1% are "
                    f"{exposed['records']:,} records, of {len(held):,} clients, at most "
                    f"{max(held):,} of one; an attack is right on them with a chance of "
                    f"{exposed['exposure']:.3f} (on all members: {exposed['everybody']:.3f})"
                )
        if source := self.audit["source"]:
            yield (
                f"source: {source['accuracy']:.3f}±{source['standard_error']:.3f} of the "
                f"members are claimed by their own cluster's model (always the largest "
                f"cluster: {source['prior_accuracy']:.3f})"
            )
        yield f"report: {self.report}"


@dataclass(frozen=True, slots=True)
class ModelAudited(Answer):
    """An audit of any classifier of torch.

    Attributes:
        model: as it was named.
        report: the page; None: none was wanted.
    """

    model: str
    audit: ModelAudit = field(metadata=HIDDEN)
    figures: Mapping[str, Any] = field(metadata=INLINE)
    seconds: float
    report: Path | None

    @property
    def exit_code(self) -> int:
        """Return 1 where there are no figures."""
        return FAILED_CHECK if self.audit.refused else 0

    def lines(self) -> Iterator[str]:
        """Yield the verdict, a row per attack, and what is missing."""
        from covey.auditor.result import rows

        yield f"{self.audit.verdict}."
        if self.audit.attacks:
            heads = ("attack", "AUC", "balanced accuracy", "advantage", "TPR at 1% FPR", "at 0.1%")
            yield tabled(heads, (tuple(row.values()) for row in rows(self.audit)))
        yield from (f"{name}: {why}" for name, why in self.audit.withheld.items())
        yield from (f"unknown: {why}" for why in self.figures["unknown"])
        if self.report:
            yield f"report: {self.report}"


@dataclass(frozen=True, slots=True)
class GamePlayed(Answer):
    """The participation game on a finished run.

    Attributes:
        view: what the adversary knows, in words.
    """

    run: Path
    view: str
    game: Mapping[str, Any]
    seconds: float

    def lines(self) -> Iterator[str]:
        """Yield who was looked for, with AUCs against reserved clients."""
        game = self.game
        looked_for = [("participants", game["participants"], game)]
        if left := game["left"]:
            looked_for.append(("left", left["clients"], left))
        if control := game["control"]:
            n = control["clients"]
            looked_for.append(("some participants", n, control["audited"]))
            looked_for.append(("the same, in a run that never met them", n, control))
        rows = (
            (who, f"{n:,}", f"{one['auc']:.3f} [{one['low']:.3f}, {one['high']:.3f}]")
            for who, n, one in looked_for
        )
        yield tabled(("who", "clients", f"AUC against {game['reserved']:,} reserved clients"), rows)
        if game["left_reason"]:
            yield f"left: {game['left_reason']}"
        yield self.view


@dataclass(frozen=True, slots=True)
class EpsilonTested(Answer):
    """A run's noise, put to the test."""

    run: Path
    test: Mapping[str, Any] = field(metadata=INLINE)
    seconds: float

    @property
    def exit_code(self) -> int:
        """Return 1 if the accounted epsilon is refuted."""
        return 0 if self.test["holds"] else FAILED_CHECK

    def lines(self) -> Iterator[str]:
        """Yield what canaries say of one release."""
        test, refuted = self.test, self.test["refuted"]
        yield (
            f"One release of {test['mechanism']} noise, {refuted['draws']} times with a "
            f"canary and as often without:"
        )
        yield (
            f"epsilon is accounted for as {test['accounted']:.3f} at delta "
            f"{test['delta']:g}; all below {refuted['epsilon']:.3f} is refuted."
        )
        yield (
            "nothing speaks against what is accounted for"
            if test["holds"]
            else "REFUTED: the code delivers less than is accounted for"
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
    model: Annotated[
        str | None,
        typer.Option(
            help="In place of a run: package.module:factory, a function that returns a "
            "classifier of torch."
        ),
    ] = None,
    members: Annotated[
        Path | None,
        typer.Option(
            help="With --model: the records that it was trained on, an .npz file with "
            "arrays x and y (or inputs and labels)."
        ),
    ] = None,
    non_members: Annotated[
        Path | None, typer.Option(help="With --model: records that it never saw.")
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            help="With --model: its state dict, as .safetensors, or as .pt with tensors alone."
        ),
    ] = None,
    train: Annotated[
        str | None,
        typer.Option(
            help="With --model: package.module:function, which takes (examples, seed) and "
            "returns a model trained like it; LiRA, RMIA and Shokri need it."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="With --model: a folder for audit.html and audit.json.")
    ] = None,
) -> RunAudited | ModelAudited | GamePlayed | EpsilonTested:
    """Attack every final cluster model, with its members against matched non-members.

    With --model, any classifier of torch, without a run. A model that diverged has no
    figures: its reason says so, and the exit code is 1.
    """
    from covey.runtime.auditing import DEFAULT_ATTACKS

    began = time.monotonic()
    if model is not None:
        if run is not None or game is not None or control or epsilon:
            raise ConfigError(
                f"covey audit takes a run or --model, found --model {model} beside "
                f"{run or '--game, --control or --epsilon, which need a run'}. Give two "
                f"commands."
            )
        return _audit_model(model, members, non_members, weights, train, attack, references, out)
    if run is None:
        raise ConfigError(
            "covey audit takes the folder of a run, or --model, found neither. Name one: "
            "covey audit runs/NAME, or covey audit --model package.module:factory "
            "--members A.npz --non-members B.npz."
        )
    if any((members, non_members, weights, train, out)):
        raise ConfigError(
            "--members, --non-members, --weights, --train and --out belong to --model, "
            "and a run is audited with its own data. Leave them out, or name a model in "
            "place of the run."
        )
    if game not in (None, PARTICIPATION):
        raise ConfigError(f"--game takes {PARTICIPATION}, found {game!r}.")
    if game is None and control:
        raise ConfigError(
            f"--control belongs to a game, and there is none. Add --game {PARTICIPATION}."
        )
    kinds = {"--attack": attack, "--game": game, "--epsilon": epsilon}
    if len(found := [name for name, wanted in kinds.items() if wanted]) > 1:
        raise ConfigError(
            f"covey audit attacks models, plays a game or tests the noise, found "
            f"{' and '.join(found)}. Give two commands."
        )
    if epsilon:
        return EpsilonTested(run, covey.audit_epsilon(run), _since(began))
    if game is not None and control:
        with shown(f"{run.name}, the control") as observe_rounds:
            played = covey.game(run, control=True, observe=observe_rounds)
        return GamePlayed(run, GAME_VIEW, played, _since(began))
    if game is not None:
        return GamePlayed(run, GAME_VIEW, covey.game(run), _since(began))
    count = REFERENCES if references is None else references

    def observe(cluster: int, played: int) -> None:
        line = f"cluster {cluster}: reference {played} of {count} played"
        console.print(line, highlight=False)

    figures = covey.audit(run, attack or DEFAULT_ATTACKS, count, observe=observe)
    return RunAudited(run, figures, _since(began), run / "audit" / "audit.html")


def _since(began: float) -> float:
    return round(time.monotonic() - began, 1)


def _audit_model(
    model: str,
    members: Path | None,
    non_members: Path | None,
    weights: Path | None,
    train: str | None,
    attack: list[str] | None,
    references: int | None,
    out: Path | None,
) -> ModelAudited:
    """Audit a model, and write what came of it where that is wanted."""
    if members is None or non_members is None:
        raise ConfigError(
            "--model needs --members and --non-members, one .npz file each with arrays "
            "x and y, or inputs and labels. Name both."
        )
    if references is not None and train is None:
        raise ConfigError(
            "--references says how many models --train trains, and there is no "
            "--train. Add --train package.module:function, a function (examples, seed) "
            "that returns a model, or leave --references out."
        )
    from covey.auditor.records import named_function, named_model
    from covey.data.arrays import read_client
    from covey.runtime.auditing import DEFAULT_ATTACKS

    began = time.monotonic()
    count = MODEL_REFERENCES if references is None else references
    audited = covey.audit_model(
        named_model(model, weights),
        read_client(members),
        read_client(non_members),
        named_function("--train", train) if train else None,
        num_references=count,
        attacks=attack or DEFAULT_ATTACKS,
        observe=lambda n: console.print(f"reference {n} of {count} trained", highlight=False),
    )
    page = None
    if out is not None:
        page = audited.write_html(out / "audit.html", f"Audit of {model}")
        (out / "audit.json").write_text(audited.to_json(), encoding="utf-8")
    return ModelAudited(model, audited, audited.to_dict(), _since(began), page)


@dataclass(frozen=True, slots=True)
class RecordsListed(Answer):
    """A client's most exposed records, the most exposed first.

    Attributes:
        page: with `--page`: where the page was written.
    """

    exposed: ExposedRecords = field(metadata=INLINE)
    page: Path | None = field(default=None, metadata=OPTIONAL)

    def lines(self) -> Iterator[str]:
        """Yield a row per record, and what they are of."""
        exposed = self.exposed
        row = ("row",) if exposed.rows_known else ()
        heads = ("rank", "record", *row, "score", "first loss", "last")
        cells = (
            (
                str(each.rank),
                str(each.place),
                *([str(each.row)] if exposed.rows_known else []),
                f"{each.score:.3f}",
                f"{each.first:.3f}",
                f"{each.last:.3f}",
            )
            for each in exposed.records
        )
        yield tabled(heads, cells)
        yield (
            f"{exposed.client}: {len(exposed.records)} of {exposed.held:,} records, by losses "
            f"of {exposed.rounds} rounds; half of its records score less than "
            f"{exposed.median_score:.3f}. The score is {exposed.score_told}."
        )
        yield f"Read from {exposed.kept_in}."
        if self.page is not None:
            yield str(self.page)


@app.command()
def records(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or of a client's own node.")],
    client: Annotated[str, typer.Argument(help="Of a run: the client's name.")] = "",
    share: Annotated[float, typer.Option(help="Which part of its records: at least one.")] = 0.02,
    page: Annotated[
        Path | None, typer.Option("--page", help="Write them as an HTML page for the client, too.")
    ] = None,
) -> RecordsListed:
    """List a client's most exposed records, on the machine where their losses lie.

    Needs train.keep_losses. Nothing else is written, and nobody is told.
    """
    from covey.runs.own_records import exposed_records

    exposed = exposed_records(run, client, share)
    return RecordsListed(exposed, None if page is None else exposed.write_html(page))
