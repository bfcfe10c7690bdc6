"""Auditing a finished run: every cluster model, against its real members."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from covey.base.arguments import in_range
from covey.base.built_ins import USUAL_ATTACKS
from covey.base.component_names import known_names
from covey.base.components import Count, create
from covey.base.errors import ConfigError, RunError, user_function
from covey.base.events import ModelAttacked
from covey.base.history import History
from covey.base.names import Params, unknown
from covey.data.examples import Examples
from covey.engine.protocol import ScoringJob
from covey.ledger.store import Ledger
from covey.membership.attacks import Attack, Scorer
from covey.membership.audit import FEDMIA, WEIGHTS, Auditor, ClusterAuditResult, examine_cluster
from covey.membership.references import Attribution, attribution, source_of
from covey.membership.truth import Candidates, Target, has_finite_examples, no_better_than_guessing
from covey.membership.weights_attack import MAX_POOL
from covey.runs.evaluation import EVERYBODY
from covey.runs.folder import RunFolder, now
from covey.runs.head_attacks import weights_attacks
from covey.runs.likelihood_ratio import RatioAttack, ratio_attack
from covey.runs.session import Session, reading_session, rounds_of
from covey.runs.states import kept_state
from covey.settings.run import BuiltRun

DEFAULT_ATTACKS = USUAL_ATTACKS

SOURCE = "source"
"""Source inference: not who was trained on, but by which cluster."""

NOT_BY_ANSWERS = (FEDMIA, SOURCE, WEIGHTS)
"""Attacks that look at more than what models say of a record."""

VIEW = (
    "The auditor's view, in a simulation: it has the real members, and replays the "
    "run's recipe on random halves of them and of matched non-members. A server holds "
    "neither and could not do this. Intervals (95%) are over records."
)

NO_SOURCE = "source inference was not chosen, or fewer than two clusters are in use"

RATES = ("balanced_accuracy", "auc", "tpr_at_1_percent", "tpr_at_01_percent")


def is_finished(path: Path) -> bool:
    """Say whether a run lies in this folder, and was played to its end."""
    folder = RunFolder(path)
    if not folder.config_path.is_file() or not Ledger.exists(folder.ledger):
        return False
    with Ledger.read(folder.ledger) as ledger:
        return folder.reader.read(ledger).history.finished is not None


@contextmanager
def finished_session(run: BuiltRun, folder: RunFolder, purpose: str) -> Generator[Session]:
    """Open a finished run to look at it; nothing is written.

    Args:
        run: as its settings make it, those who left included.
        folder: the run's.
        purpose: who asks, as an error's sentence begins: "An audit".

    Raises:
        RunError: the run is not finished, or its settings or data are others now.
    """
    if Ledger.exists(folder.ledger):
        with reading_session(run, folder) as session:
            if session.record.history.finished is not None:
                yield session
                return
    raise RunError(
        f"{purpose} needs a finished run, found one that is not: run `covey resume {folder.path}`."
    )


@dataclass(frozen=True, slots=True)
class Audit:
    """What the attacks achieved on a run's final models, as `audit/audit.json` holds it.

    Attributes:
        view: who could find this, in words.
        references: federations that were played again per cluster.
        source: how often a member's own cluster model fits it best.
        source_reason: why that is not known.
        likelihood_ratio: what no attack exceeds on any record, where clients sent sums of
            gradients under noise that guarantees something.
    """

    view: str
    references: int
    clusters: tuple[ClusterAuditResult, ...]
    source: Attribution | None
    source_reason: str
    likelihood_ratio: RatioAttack | None = None

    @property
    def diverged(self) -> tuple[int, ...]:
        """The clusters without a model."""
        return tuple(cluster.cluster for cluster in self.clusters if cluster.diverged)


def audit_run(
    session: Session,
    attacks: Sequence[str | Scorer],
    references: int,
    observe: Callable[[int, int], None],
) -> Audit:
    """Attack every final cluster model of a run; all randomness is the run's seed's.

    Args:
        session: the run, finished and open to be read.
        attacks: names of attacks, "fedmia", "source", "weights", a user's own as
            `package.module:name`, or attacks themselves.
        references: federations played again per cluster.
        observe: called with the cluster and the number of its references played so far.

    Raises:
        ConfigError: an attack is unknown, or there are too few references.
        RunError: the final models are gone.
    """
    check_attacks(attacks)
    references = in_range("references", references, Count)
    if references < 2:
        raise ConfigError(
            f"references must be 2 or more, one with each record, found {references}: raise it."
        )
    by_answers = [attack for attack in attacks if attack not in NOT_BY_ANSWERS]
    named = dict(map(named_attack, by_answers))
    run, targets = session.run, _targets(session)
    references = references if set(attacks) - {WEIGHTS} else 0
    auditor = Auditor(
        attacks=named,
        from_updates=FEDMIA in attacks,
        references=references,
        retrain_recipe=run.retrain_recipe,
        observe=observe,
        from_weights=partial(_attack_weights, run) if WEIGHTS in attacks else None,
    )
    streams = run.streams.at("audit of a finished run")
    clusters = tuple(
        examine_cluster(run.engine, target, run.reference, auditor, streams.at(target.cluster))
        for target in targets
    )
    groups = tuple(group.name for group in run.population.groups)
    gone = ", ".join(str(cluster.cluster) for cluster in clusters if cluster.diverged)
    source = _source(run, targets) if SOURCE in attacks and not gone else None
    no_source = NO_SOURCE
    if gone:
        no_source = f"it rests on all models in use, and cluster {gone} has none"
    return Audit(
        view=VIEW,
        references=references,
        clusters=tuple(_by_name(cluster, groups) for cluster in clusters),
        source=source,
        source_reason="" if source else no_source,
        likelihood_ratio=ratio_attack(session),
    )


def _by_name(cluster: ClusterAuditResult, groups: Sequence[str]) -> ClusterAuditResult:
    """Return figures by the groups' names, and why overall ones are unknown."""
    attacks = {
        name: replace(
            figures,
            by_group={
                groups[int(index)] if index else EVERYBODY: part
                for index, part in figures.by_group.items()
            },
        )
        for name, figures in cluster.attacks.items()
    }
    overall = [getattr(attack.overall, rate) for attack in attacks.values() for rate in RATES]
    unknown = tuple(sorted({estimate.reason for estimate in overall if estimate.reason}))
    return replace(cluster, attacks=attacks, unknown=unknown)


def _attack_weights(
    run: BuiltRun, target: Target, candidates: Candidates
) -> Mapping[str, np.ndarray]:
    """Score candidates beside everybody's records by each attack on weights."""
    theirs = {client.handle for client in target.members}
    elsewhere = [c.train for c in run.population.clients if c.handle not in theirs]
    background = [stratum.background for stratum in candidates.strata]
    pool = [candidates.examples, *background, *elsewhere]
    if (size := sum(map(len, pool))) > MAX_POOL:
        raise ConfigError(
            f"The attack weights must solve for at most {MAX_POOL} records together, found {size}: "
            f"audit a smaller federation with the same settings."
        )
    attacks = weights_attacks(run, target.params)
    scores = {
        name: attack(pool if name == WEIGHTS else [candidates.examples])
        for name, attack in attacks.items()
    }
    by_attack = {name: score for name, score in scores.items() if score is not None}
    if not by_attack:
        raise ConfigError(
            f"The attack weights needs a linear last layer and one class per example, found "
            f"model.name = {run.config.model.name!r}: leave it out."
        )
    return {name: scores[: len(candidates.examples)] for name, scores in by_attack.items()}


def check_attacks(attacks: object) -> None:
    """Refuse what names no attack.

    Raises:
        ConfigError: it is one name and no list of them, or an empty list.
    """
    if isinstance(attacks, str) or not isinstance(attacks, Sequence) or not attacks:
        raise ConfigError(
            f"attacks must be a list of at least one, found {attacks!r}: pass for example ['loss']."
        )


def named_attack(attack: str | Scorer) -> tuple[str, Scorer]:
    """Return an attack, and what its figures are called."""
    if not isinstance(attack, str) and not callable(attack):
        raise ConfigError(
            f"An attack must be a name, package.module:name if it is your own, or the attack "
            f"itself, found a {type(attack).__name__}: give one of them."
        )
    name = attack if isinstance(attack, str) else ""
    if name and ":" not in name and name not in known_names("attack"):
        known = *known_names("attack"), *NOT_BY_ANSWERS
        raise ConfigError(unknown("--attack", name, known, "package.module:name"))
    made = create("attack", attack, "--attack", Attack)
    name = made.name
    options = ", ".join(f"{key}={value}" for key, value in made.own_settings().items())
    called = f"{name}({options})" if options else name
    return called, user_function(f"attack {name}", made) if made.is_own else made


def record_attacks(folder: RunFolder, history: History, audit: Audit) -> None:
    """Record what attacks achieved on final models: violations follow the strongest.

    The same audit again adds nothing.

    Raises:
        LedgerLocked: another process is writing this run.
    """
    if history.finished is None:
        return
    facts = [
        ModelAttacked(cluster.cluster, attack.overall.estimate(name), history.finished.model_hash)
        for cluster in audit.clusters
        for name, attack in cluster.attacks.items()
        if attack.overall.balanced_accuracy.value is not None
    ]
    if audit.likelihood_ratio is not None:
        facts += audit.likelihood_ratio.facts(0, history.finished.model_hash)
    new = [fact for fact in facts if fact not in history.attacks]
    if new:
        with Ledger.open(folder.ledger, now) as ledger:
            folder.reader.read(ledger)
            folder.reader.add_written(ledger.append_between(folder.reader.following(new)))


def _targets(session: Session) -> list[Target]:
    """Return each cluster model with the clients that use it and trained it."""
    run, history = session.run, session.record.history
    rounds = rounds_of(run.config, history)

    def of(j: int, params: Params) -> Target:
        clients = tuple(
            client
            for client in run.population.clients
            if history.assignment[client.handle] == j
            and j in history.trained.get(client.handle, ())
            and has_finite_examples(client)
        )
        known = history.diverged.get(j)
        none = known.reason if known else no_better_than_guessing(run.engine, params, clients)
        return Target(j, params, clients, rounds, diverged=none)

    return [
        of(j, params)
        for j, params in enumerate(kept_state(session.folder, session.ledger).clusters)
    ]


def _source(run: BuiltRun, targets: Sequence[Target]) -> Attribution | None:
    """Let every model in use claim the members of all of them."""
    used = [target for target in targets if target.members]
    if len(used) < 2:
        return None
    own_records = [Examples.joined([c.train for c in target.members]) for target in used]
    everything = Examples.joined(own_records)
    jobs = [ScoringJob(target.params, everything) for target in used]
    losses = [scored.losses.double().numpy() for scored in run.engine.score(jobs)]
    truth = np.repeat(np.arange(len(used)), [len(examples) for examples in own_records])
    return attribution(source_of(np.stack(losses)), truth)
