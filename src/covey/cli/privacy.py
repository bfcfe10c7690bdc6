"""`covey audit`, `covey guarantee` and `covey explain`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

import covey
from covey.base.as_json import HIDDEN, INLINE, OPTIONAL
from covey.base.errors import ConfigError
from covey.base.names import round_number
from covey.cli.answer import CommandResult, Line, fail_if, short, tabled, text_of
from covey.cli.commands import PATH, argument, command, trust_code_option
from covey.cli.console import console

if TYPE_CHECKING:
    from covey.auditor.plausible import PlausibleModels
    from covey.auditor.result import ModelAudit
    from covey.dp.run_guarantees import Noise, NoisePlan
    from covey.dp.status import Guarantee
    from covey.leaving.deniability import DeniabilityRow
    from covey.leaving.places import Explanation
    from covey.membership.attacks import Knowledge
    from covey.runs.auditing import Audit

ATTACKED = ("AUC", "balanced accuracy", "advantage", "TPR at 1% FPR", "at 0.1%")
WITHOUT_MODEL = "AUC of a classifier that never sees the model (0.5: the sides are alike):"
REFERENCES = 4
MODEL_REFERENCES = 8


MOSTLY_NOISE = 5
"""Times the largest update's norm, from which on a released model is mostly noise."""


@dataclass(frozen=True, slots=True)
class RunAudited(CommandResult):
    """An audit of a run's final models.

    Attributes:
        report: the page.
    """

    audit: Audit = field(metadata=INLINE)
    report: Path

    def lines(self) -> Iterator[Line]:
        """Yield the overall figures with 95% intervals, and what is missing."""
        from covey.runs.auditing import RATES

        yield tabled(
            ("cluster", "attack", "balanced accuracy", "AUC", "TPR at 1% FPR", "at 0.1%"),
            [
                (str(cluster.cluster), name, *(getattr(figures.overall, r).cell for r in RATES))
                for cluster in self.audit.clusters
                for name, figures in cluster.attacks.items()
            ],
        )
        for cluster in self.audit.clusters:
            yield f"cluster {cluster.cluster}: {WITHOUT_MODEL} {cluster.blind_auc}"
            for reason in filter(None, (cluster.reason, *cluster.unknown)):
                yield f"cluster {cluster.cluster}: {reason}"
            if (exposed := cluster.exposed) is not None:
                held = exposed.held
                yield (
                    f"cluster {cluster.cluster}: the most exposed 1% are "
                    f"{exposed.records:,} records, of {len(held):,} clients, at most "
                    f"{max(held):,} of one; an attack is right on them with a chance of "
                    f"{exposed.exposure:.3f} (on all members: {exposed.everybody:.3f})"
                )
        if (ratio := self.audit.likelihood_ratio) is not None:
            yield (
                f"likelihood ratio over all rounds, of an attacker who has every record but one: "
                f"{ratio.success.cell} over {ratio.records:,} records, {ratio.worst:.3f} on one; "
                f"no attack exceeds {ratio.bound:.3f}; {ratio.above} clients have a record above "
                f"what they accept"
            )
        if source := self.audit.source:
            yield (
                f"source: {source.accuracy:.3f}±{source.standard_error:.3f} of the "
                f"members are claimed by their own cluster's model (always the largest "
                f"cluster: {source.prior_accuracy:.3f})"
            )
        yield f"report: {self.report}"


@text_of("covey.auditor.plausible.PlausibleModels")
def _plausible_text(audit: PlausibleModels) -> Iterator[Line]:
    """Yield how many answers differ, how far models are apart, and what that does not say."""
    yield (
        f"round {round_number(audit.round_index)}: {audit.sets} anonymity sets allow "
        f"{audit.alternatives} other models, compared on {audit.records:,} records"
    )
    yield tabled(
        ("", "median", "largest"),
        [
            (name, short(spread.median), short(spread.largest))
            for name, spread in (
                (
                    "share of a client's records with another answer, nearest model",
                    audit.differing_nearest,
                ),
                ("the same, of any model", audit.differing_any),
                ("distance of the nearest model, as a share of the round's step", audit.distance),
            )
        ],
    )
    yield f"sets on which no answer differs of the nearest model: {audit.equivalent_sets}"
    yield audit.view
    yield audit.not_said


@dataclass(frozen=True, slots=True)
class ModelAudited(CommandResult):
    """An audit of any classifier of torch.

    Attributes:
        model: as it was named.
        report: the page; None: none was wanted.
        limit: what AUC is allowed; None: any.
        over_limit: whether the strongest attack's is above it, or unknown.
    """

    model: str
    audit: ModelAudit = field(metadata=HIDDEN)
    figures: Mapping[str, Any] = field(metadata=INLINE)
    report: Path | None
    limit: float | None
    over_limit: bool

    def lines(self) -> Iterator[Line]:
        """Yield the verdict, a row per attack, and what is missing."""
        from covey.auditor.result import rows

        yield f"{self.audit.verdict}."
        if self.audit.attacks:
            head = ("attack", *ATTACKED, "its attacker has")
            yield tabled(head, [tuple(row.values()) for row in rows(self.audit)])
        yield f"{WITHOUT_MODEL} {self.audit.blind_auc}"
        yield from (f"{name}: {why}" for name, why in self.audit.withheld.items())
        yield from (f"unknown: {why}" for why in self.figures["unknown"])
        if self.limit is not None:
            yield f"{'above' if self.over_limit else 'within'} the limit: AUC {self.limit:g}"
        if self.report:
            yield f"report: {self.report}"


@command()
@argument("run", type=PATH, required=False, help="The folder of a finished run; or --model.")
@click.option(
    "--attack",
    multiple=True,
    help="loss, shokri, lira, rmia (these four are the default, with bavaria and inverse-hessian "
    "of a model), entropy, plain-entropy, lira-offline, rmia-offline, bavaria-offline, "
    "gradient-norm, fedmia, source, weights (of ridge heads; of a model ridge-weights), or your "
    "own as package.module:function; repeatable.",
)
@click.option(
    "--references",
    type=int,
    help="Federations played again per cluster (default 4), or models that --train trains "
    "(default 8); at least 2.",
)
@click.option(
    "--model",
    help="In place of a run: package.module:factory, a function that returns a classifier of "
    "torch.",
)
@click.option(
    "--members",
    type=PATH,
    help="With --model: the records that it was trained on, an .npz file with arrays x and y (or "
    "inputs and labels).",
)
@click.option("--non-members", type=PATH, help="With --model: records that it never saw.")
@click.option(
    "--weights",
    type=PATH,
    help="With --model: its state dict, as .safetensors, or as .pt with tensors alone.",
)
@click.option(
    "--train",
    help="With --model: package.module:function, which takes (examples, seed) and returns a model "
    "trained like it; LiRA, RMIA and Shokri need it.",
)
@click.option(
    "--out",
    type=PATH,
    help="With --model: a folder for audit.html and audit.json, and for what references say: the "
    "same command again trains none of them twice.",
)
@click.option(
    "--limit",
    type=click.FloatRange(0, 1),
    help="With --model: exit code 1, too, where the strongest attack's AUC is above this, of "
    "those that --knowledge counts.",
)
@click.option(
    "--knowledge",
    type=click.Choice(("outputs", "weights", "all-others")),
    help="With --model: what the attackers that the verdict and --limit are about have at most: "
    "answers (the default), the model itself, or all other members, too.",
)
@click.option(
    "--plausible",
    is_flag=True,
    help="In place of attacks: on how many records a loss threshold answers otherwise of a model "
    "that the last round's anonymity sets allow instead, and how far that model is away.",
)
@trust_code_option
def audit(
    run: Path | None,
    *,
    attack: Sequence[str],
    references: int | None,
    model: str | None,
    members: Path | None,
    non_members: Path | None,
    weights: Path | None,
    train: str | None,
    out: Path | None,
    limit: float | None,
    knowledge: Knowledge | None,
    plausible: bool,
    trust_code: bool,
) -> Iterator[RunAudited | ModelAudited | PlausibleModels]:
    """Attack every final cluster model, with its members against matched non-members.

    With --model, any classifier of torch, without a run. A model that diverged has no
    figures: its reason says so, and the exit code is 1.
    """
    if plausible and (attack or references is not None or model is not None):
        raise ConfigError(
            "--plausible must be alone, found --attack, --references or --model: give two commands."
        )
    sides = {"--members": members, "--non-members": non_members}
    of_model = {**sides, "--weights": weights, "--train": train, "--out": out}
    of_model |= {"--limit": limit is not None, "--knowledge": knowledge}
    if strange := [] if model else [name for name, value in of_model.items() if value]:
        raise ConfigError(
            f"{' and '.join(strange)} must be with --model, found a run: give two commands."
        )
    if model is not None and run is None:
        if members is None or non_members is None:
            raise ConfigError(
                "--model needs --members and --non-members, one .npz file each with arrays x and "
                "y, or inputs and labels, found one or none: name both."
            )
        if references is not None and train is None:
            raise ConfigError(
                "--references needs --train, found none: add --train package.module:function, a "
                "function (examples, seed) that returns a model, or leave --references out."
            )
        from covey.auditor.audit import MODEL_ATTACKS
        from covey.cli.named_model import named_function, named_model
        from covey.data.arrays import read_client

        count = MODEL_REFERENCES if references is None else references
        audited = covey.audit_model(
            named_model(model, weights),
            read_client(members),
            read_client(non_members),
            named_function("--train", train) if train else None,
            num_references=count,
            attacks=attack or MODEL_ATTACKS,
            knowledge=knowledge or "outputs",
            folder=out and out / "references",
            observe=lambda n: console.print(f"reference {n} of {count} trained"),
        )
        page = out and audited.write_html(out / "audit.html", f"Audit of {model}")
        if out is not None:
            (out / "audit.json").write_text(audited.to_json(), encoding="utf-8")
        over = limit is not None and audited.exceeds(limit)
        yield ModelAudited(model, audited, audited.to_dict(), page, limit, over)
        fail_if(audited.refused or over)
        return
    if run is None or model is not None:
        raise ConfigError(
            f"covey audit must have a run's folder or --model, found "
            f"{'neither' if run is None else 'both'}: name one: covey audit runs/NAME, or covey "
            f"audit --model package.module:factory --members A.npz --non-members B.npz."
        )
    held = covey.load(run, trust_code=trust_code)
    if plausible:
        from covey.auditor.plausible import plausible_models

        purpose = "A comparison with plausible models"
        with held.open_finished("open_finished(...)", purpose) as session:
            yield plausible_models(session)
        return
    from covey.runs.auditing import DEFAULT_ATTACKS

    count = REFERENCES if references is None else references

    def observe(cluster: int, played: int) -> None:
        console.print(f"cluster {cluster}: reference {played} of {count} played")

    attacked = held.audit(attack or DEFAULT_ATTACKS, count, observe)
    yield RunAudited(attacked, run / "audit" / "audit.html")
    fail_if(bool(attacked.diverged))


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """What a client with a budget of its own may do: so many rounds, or all with a weight."""

    epsilon_limit: float
    rounds: int
    weight: float


@dataclass(frozen=True, slots=True)
class ExposureRow:
    """What a client that accepts this risk adds to a sum, and what holds for it then.

    Attributes:
        threshold: tau, a balanced accuracy.
        exposure: C_i / C.
        bound: the largest balanced accuracy of any attack.
        epsilon: as it, or its record, contributes or not.
        epsilon_replaced: as it is replaced by another.
    """

    threshold: float
    exposure: float
    bound: float
    epsilon: float
    epsilon_replaced: float


@dataclass(frozen=True, slots=True)
class NoiseGuarantee(CommandResult):
    """What noise guarantees, beside its size; of the paper, what its algorithm delivers.

    Attributes:
        noise: `paper`, or as in `covey.dp.run_guarantees.NoisePlan`.
        epsilon_claimed: by the paper's Theorem 1, or to be reached; None: the noise was named,
            or the theorem claims nothing for it.
        noise_multiplier: z of every release.
        sigma: of the paper.
        views: epsilon by what an adversary sees, of anonymity sets.
        noise_norm: of each released model; not for `record` and `steps`.
        update_norm: the largest of one update.
        budgets: of clients that have one, and how far it goes.
        exposures: by the risk that a client accepts.
    """

    noise: str
    rounds: int
    epsilon_claimed: float | None
    guarantee: Guarantee = field(metadata=INLINE)
    noise_multiplier: float
    sigma: float | None = field(default=None, metadata=OPTIONAL)
    views: Mapping[str, float | None] | None = field(default=None, metadata=OPTIONAL)
    noise_norm: float | None = field(default=None, metadata=OPTIONAL)
    update_norm: float | None = field(default=None, metadata=OPTIONAL)
    budgets: Sequence[BudgetRow] | None = field(default=None, metadata=OPTIONAL)
    exposures: Sequence[ExposureRow] | None = field(default=None, metadata=OPTIONAL)

    def lines(self) -> Iterator[Line]:
        """Yield the number, then what it is about: no number stands without that."""
        held = self.guarantee
        if held.epsilon is None:
            yield f"No guarantee: {held.reason}."
        else:
            yield (
                f"epsilon {held.epsilon:.3f} at delta {held.delta:g} over {self.rounds} rounds, "
                f"with noise multiplier {self.noise_multiplier:.3f}."
            )
        if self.sigma is not None:
            yield f"\n{_claim(self.sigma, held.delta, self.rounds)}"
        if self.noise_norm is not None and self.update_norm is not None:
            ratio = self.noise_norm / self.update_norm
            much = ": mostly noise. Take more clients or fewer parameters."
            yield (
                f"\nEach released model carries noise of norm {self.noise_norm:.3g}, "
                f"{ratio:.3g} times the largest norm of one update"
                f"{much if ratio > MOSTLY_NOISE else '.'}"
            )
        if self.budgets is not None:
            rows = [(short(b.epsilon_limit), str(b.rounds), short(b.weight)) for b in self.budgets]
            yield from ("", tabled(("a budget of", "lasts rounds", "or all with weight"), rows))
        if self.exposures is not None:
            rows = [tuple(map(short, astuple(exposure))) for exposure in self.exposures]
            head = (
                "a client accepts",
                "clips to C_i / C",
                "no attack above",
                "epsilon",
                "replaced",
            )
            yield from ("", tabled(head, rows))
        yield f"\nNeighbours: {held.relation}."
        if self.views is not None:
            rows = [(name, "none" if e is None else short(e)) for name, e in self.views.items()]
            yield from ("", tabled(("if an adversary sees", "epsilon"), rows))
        for head in ("covers", "does_not_cover", "holds_if"):
            yield f"\n{head.replace('_', ' ')}"
            yield from (f"- {item}" for item in getattr(held, head))


def _claim(sigma: float, delta: float, rounds: int) -> str:
    """Say what Theorem 1 claims for a sigma."""
    from covey.dp.accountant import claimed_epsilon, formula_epsilon, theorem_range

    reports = "A run with aggregation.noise = 'paper' reports none."
    if (claimed := claimed_epsilon(sigma, delta, rounds)) is not None:
        return f"Theorem 1 claims epsilon {claimed:.3f} for sigma {sigma:.3f}. {reports}"
    return (
        f"Theorem 1 claims nothing for sigma {sigma:.3f}: its formula gives epsilon "
        f"{formula_epsilon(sigma, delta, rounds):.1f}, outside its range, 0 < epsilon < "
        f"8 log(1/delta) = {theorem_range(delta):.1f}. {reports}"
    )


@dataclass(frozen=True, slots=True)
class DeniabilityTable:
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


def _number(
    name: str, kind: click.IntRange | click.FloatRange, default: int | float, help: str
) -> Any:  # noqa: ANN401
    return click.option(name, type=kind, default=default, show_default=True, help=help)


POSITIVE, COUNT = click.FloatRange(min=0), click.IntRange(min=1)


@command()
@click.option(
    "--noise",
    type=click.Choice(["paper", "sound", "client", "distributed", "local", "record", "steps"]),
    help="Whose epsilon? The paper's theorem, or a mechanism's: record, sums of clipped "
    "gradients; steps, DP-SGD.",
)
@click.option(
    "--sigma",
    type=POSITIVE,
    help="The noise: the paper's sigma, else the multiplier z of its mechanism.",
)
@click.option("--epsilon", type=POSITIVE, help="Find the noise for this epsilon.")
@_number("--delta", click.FloatRange(1e-12, 0.5), 1e-5, "The slack of the epsilon.")
@_number("--set-size", COUNT, 6, "k, with --noise sound.")
@_number("--sets", COUNT, 1, "With --noise sound.")
@_number(
    "--sampling",
    click.FloatRange(1e-6, 1),
    1.0,
    "Chance of a client per round, or of an example per step.",
)
@_number("--steps", COUNT, 1, "Per round, of a client.")
@_number("--radius", POSITIVE, 1.0, "Delta, or the clip.")
@_number(
    "--coordinates",
    COUNT,
    61_706,
    "Parameters of the model; lenet5 has 107786, linear on MNIST 7850.",
)
@click.option(
    "--limit",
    "limits",
    type=click.FloatRange(min=1e-6),
    multiple=True,
    help="A client's own budget (epsilon_limit): how many rounds does it last?",
)
@click.option(
    "--threshold",
    "thresholds",
    type=click.FloatRange(0.5, 1),
    multiple=True,
    help="A risk that a client accepts (risk_threshold): how much of the clip may it use?",
)
@_number("--releases", COUNT, 1, "How many times the rounds may be played, with --threshold.")
@click.option("--deniability", is_flag=True, help="Which k and x keep forced replays rare?")
@_number(
    "--clients",
    click.IntRange(min=2),
    50,
    "In every round; with --noise distributed, min_cohort less colluders.",
)
@_number("--rounds", COUNT, 50, "How many are played.")
@_number("--requests", click.IntRange(min=0), 10, "Clients that ask to leave.")
@_number("--target", click.FloatRange(0, 1), 0.05, "The probability to stay below.")
def guarantee(
    *,
    noise: Noise | Literal["paper"] | None,
    sigma: float | None,
    epsilon: float | None,
    delta: float,
    set_size: int,
    sets: int,
    sampling: float,
    steps: int,
    radius: float,
    coordinates: int,
    limits: Sequence[float],
    thresholds: Sequence[float],
    releases: int,
    deniability: bool,
    clients: int,
    rounds: int,
    requests: int,
    target: float,
) -> NoiseGuarantee | DeniabilityTable:
    """Say what settings promise before a run is played.

    --noise: the epsilon that noise delivers, or the noise for an epsilon.
    --deniability: exact where each round's sets are drawn at random
    (aggregation.partition = public-random); for sets of similar models it is a guide.
    """
    from covey.leaving.deniability import settings_below

    if deniability == (noise is not None):
        raise ConfigError(
            f"covey guarantee takes --deniability or --noise, found "
            f"{'both' if deniability else 'neither'}: ask for one."
        )
    if deniability and requests > clients:
        raise ConfigError(
            f"--requests must be at most the {clients} --clients, found {requests}: lower it."
        )
    if noise is None:
        holds_if = (
            "every client takes part in every round, in one cluster",
            "sets are drawn at random, independently in every round",
            "who asks to leave is random",
        )
        rows = settings_below(target, clients, rounds, requests)
        return DeniabilityTable(clients, rounds, requests, target, holds_if, rows)
    chosen = [value for value in (sigma, epsilon) if value is not None]
    if len(chosen) != 1 or chosen[0] == 0:
        raise ConfigError(
            f"covey guarantee --noise takes --sigma or --epsilon, above 0, found {sigma} and "
            f"{epsilon}: give one of them, as no noise is no guarantee."
        )
    from covey.dp.run_guarantees import NoisePlan, adversary_views, forecast, multiplier, noise_norm

    if noise == "paper":
        return _of_the_paper(sigma, epsilon, delta, rounds)
    plan = NoisePlan(noise, rounds, delta, set_size, sets, clients, sampling, steps, coordinates)
    z = sigma or multiplier(plan, epsilon or 0.0)
    averaged = noise in ("record", "steps")  # of many steps, or records, whose number is open
    return NoiseGuarantee(
        noise=noise,
        rounds=rounds,
        epsilon_claimed=epsilon,
        guarantee=forecast(plan, z),
        noise_multiplier=z,
        views=dict(adversary_views(plan, z)) if noise == "sound" else None,
        noise_norm=None if averaged else noise_norm(plan, z, radius, coordinates),
        update_norm=None if averaged else radius,
        budgets=[_budget(plan, z, limit) for limit in limits] or None,
        exposures=[_exposure(plan, z, threshold, releases) for threshold in thresholds] or None,
    )


def _budget(plan: NoisePlan, z: float, limit: float) -> BudgetRow:
    """Return how far a client's own budget goes in this plan.

    Raises:
        ConfigError: its noise hides no client, or a client in a set.
    """
    from covey.dp.budget import rounds_within, weight_within

    if plan.noise in ("sound", "record", "steps"):
        raise ConfigError(
            f"--limit needs --noise client, distributed or local, found {plan.noise}: choose one."
        )
    hidden = plan.at(z), plan.coordinates
    lasting = rounds_within(*hidden, limit, plan.rounds)
    return BudgetRow(limit, lasting, weight_within(*hidden, limit))


def _exposure(plan: NoisePlan, z: float, threshold: float, releases: int) -> ExposureRow:
    """Return how much of the clip a client may use in this plan.

    Raises:
        ConfigError: the noise is on no sum over all clients.
    """
    from covey.dp.accountant import gaussian_epsilon
    from covey.dp.exposure import exposure_within, success_of

    if plan.noise not in ("client", "distributed", "record"):
        raise ConfigError(
            f"--threshold needs --noise record, client or distributed, found {plan.noise}: name it."
        )
    rounds, rounding = plan.rounds * releases, plan.at(z).rounding(plan.coordinates)
    exposure = exposure_within(threshold, rounds, z, rounding)
    mu = math.sqrt(rounds) * (exposure / z + rounding) if exposure else 0.0
    added, replaced = (gaussian_epsilon(distance, plan.delta) for distance in (mu, 2 * mu))
    return ExposureRow(threshold, exposure, success_of(mu), added, replaced)


def _of_the_paper(
    sigma: float | None, epsilon: float | None, delta: float, rounds: int
) -> NoiseGuarantee:
    """Return what Theorem 1 claims for a sigma, and what its algorithm delivers."""
    from covey.dp.accountant import claimed_epsilon, claimed_sigma, delivered_epsilon
    from covey.dp.status import Guarantee

    noise = sigma or claimed_sigma(epsilon or 0.0, delta, rounds)
    cost = delivered_epsilon(noise, delta, rounds)
    delivered = Guarantee(
        epsilon=cost.epsilon if cost else None,
        reason="" if cost else "what the algorithm delivers has no finite epsilon",
        delta=delta,
        unit="client",
        relation="one client's update is replaced by another in the ball",
        adversary="sees every representative of every round",
        covers=("every representative of every round",),
        does_not_cover=(
            "which clients are in which set, and how far apart they are",
            "the server, which saw every update before there was noise",
        ),
        holds_if=(
            "every update lies in a ball of radius Delta in L2: the paper keeps none there",
            "who is in which set depends on no update: with MDAV or k-means it does",
            "no one can recompute the noise (secrets.source = 'os')",
        ),
        accountant=cost.accountant if cost else None,
        noise_multiplier=noise / 2,
    )
    claimed = claimed_epsilon(noise, delta, rounds)
    return NoiseGuarantee("paper", rounds, claimed, delivered, noise / 2, noise)


@command()
@argument("run", type=PATH, help="The folder of a run.")
@argument("client", help="The client's name.")
@click.option("--page", type=PATH, help="Write it as an HTML page, too.")
def explain(run: Path, client: str, page: Path | None) -> Explanation:
    """Show what is held on a client, and where, before anything is erased."""
    from covey.leaving.places import explain_client
    from covey.runs.folder import RunFolder

    held = explain_client(RunFolder.existing(run), client)
    if page is not None:
        from covey.leaving.copies import on_record
        from covey.report.page import write_explanation

        with on_record([run], "explanation", page, subject=held.handle):
            write_explanation(held, run.name, page)
        console.print(f"page: {page}", soft_wrap=True)
    return held
