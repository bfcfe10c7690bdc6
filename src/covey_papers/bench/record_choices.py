"""Who ends above what it accepts, where clients choose by their own records' risk."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

import covey
from covey.config import load_config

__all__ = ["ChoiceMeans", "ChoiceOutcome", "choice_means", "choice_outcomes"]

CHOICES: Mapping[str, tuple[str, ...]] = {
    "FedAvg": ("method.name=fedavg",),
    "threshold, counts from the clients": ("redteam.source=federated",),
    "threshold, each client's losses": ("redteam.source=client",),
    "threshold, each client's own records": ("redteam.source=own-records",),
}
"""How clients come to a model, as settings beside those of the file."""


@dataclass(frozen=True, slots=True)
class ChoiceOutcome:
    """How one run ended.

    Attributes:
        violations: clients whose final model's true risk is above what they accept.
        exposed: the same of the highest risk of all models that they ever trained.
        clusters_used: models that somebody ends in.
    """

    choice: str
    seed: int
    clients: int
    violations: int
    exposed: int
    accuracy: float
    clusters_used: int


@dataclass(frozen=True, slots=True)
class ChoiceMeans:
    """Means over seeds, with the standard error of the violations.

    Attributes:
        violations_error: None for one seed.
    """

    choice: str
    seeds: int
    violations: float
    violations_error: float | None
    exposed: float
    accuracy: float
    clusters_used: float


def choice_outcomes(
    settings: Path, seeds: int, out: Path, overrides: Sequence[str] = ()
) -> Iterator[ChoiceOutcome]:
    """Play every choice with every seed; runs that lie in the folder are carried on.

    Raises:
        CoveyError: a run that lies there has other settings.
    """
    for seed in range(seeds):
        for choice, more in CHOICES.items():
            config = load_config(settings, [*overrides, f"seed={seed}", *more])
            path = out / f"{more[0].rpartition('=')[2]}-{seed}"
            run = covey.run(config=config, out=path, exist="resume")
            yield _outcome(choice, seed, run)


def _outcome(choice: str, seed: int, run: covey.Run) -> ChoiceOutcome:
    told = run.summary
    return ChoiceOutcome(
        choice=choice,
        seed=seed,
        clients=len(run.names),
        violations=told["violations"]["count"],
        exposed=told["violations"]["count_exposed"],
        accuracy=told["accuracy"]["overall"],
        clusters_used=len(set(run.history.assignment.values())),
    )


def choice_means(found: Sequence[ChoiceOutcome]) -> tuple[ChoiceMeans, ...]:
    """Return a row per choice."""
    rows: list[ChoiceMeans] = []
    for choice in dict.fromkeys(each.choice for each in found):
        own = [each for each in found if each.choice == choice]
        counts = [float(each.violations) for each in own]
        rows.append(
            ChoiceMeans(
                choice=choice,
                seeds=len(own),
                violations=fmean(counts),
                violations_error=stdev(counts) / len(own) ** 0.5
                if len(own) > 1
                else None,
                exposed=fmean(each.exposed for each in own),
                accuracy=fmean(each.accuracy for each in own),
                clusters_used=fmean(each.clusters_used for each in own),
            )
        )
    return tuple(rows)
