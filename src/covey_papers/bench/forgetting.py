"""What each answer to a client that leaves takes out of the models, and what it tells.

Every federation is played from many seeds, which vary initial weights, batches, features
and hidden draws; the clients' examples stay. Models after each answer are told, or not,
from models of other seeds that never met the client.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import numpy as np
from pydantic import TypeAdapter

from covey.atomic_io import replace_whole
from covey.rng import Streams
from covey_papers.bench.criteria import Check
from covey_papers.bench.forgetting_data import ForgettingSet
from covey_papers.bench.forgetting_runs import (
    Answered,
    SeedResult,
    Seen,
    never_met,
    seed_result,
)
from covey_papers.bench.leaving_leaks import Leaked, leaked
from covey_papers.bench.unlearning_epsilon import (
    ControlRange,
    EpsilonSummary,
    control_range,
    epsilons,
    summary_of,
)

__all__ = [
    "NEVER",
    "NOTHING",
    "Forgotten",
    "ForgottenRow",
    "forgetting_checks",
    "forgotten",
]

NOTHING, NEVER = "nothing removed", "never met"
ANOTHER = "retrain, from another seed"
APART = 1_000
"""Seeds from here on are those of models that never met the client, for comparison."""

EXACT = ("retrain", "subtract")

Kept = TypeVar("Kept", SeedResult, Seen)


@dataclass(frozen=True, slots=True)
class ForgottenRow:
    """One answer, over all seeds.

    Attributes:
        per_example: epsilons of the leaver's examples.
        fresh: of examples like them that nobody had. As large: models are otherwise
            trained, which says nothing of the leaver.
        moved: by how much the mean confidence in the leaver's labels is above that of
            models that never met it, and the same of the fresh ones'.
        given: what was answered; a roll back that no set calls for is a denial.
        same_bits: in how many seeds the model is that of the seed without the leaver.
        weights_apart: the largest difference of a weight from that one.
        as_before: in how many seeds it is the model before the answer.
        from_round: the mean round that was played again first; None: none was.
        sums_tell: in how many seeds sums before and after have the leaver's labels
            between them; None: there are no sums.
    """

    answer: str
    epsilon: EpsilonSummary
    per_example: tuple[float, ...]
    fresh: EpsilonSummary
    moved: tuple[float, float]
    accuracy: float
    given: Mapping[str, int]
    same_bits: int
    weights_apart: float
    as_before: int
    from_round: float | None
    sums_tell: int | None


@dataclass(frozen=True, slots=True)
class Forgotten:
    """One federation.

    Attributes:
        models: on either side.
        rows: "nothing removed", each answer, and "never met" last, the control.
        leaks: by answer.
    """

    name: str
    models: int
    control: ControlRange
    rows: tuple[ForgottenRow, ...]
    leaks: Mapping[str, Leaked]

    def row(self, answer: str) -> ForgottenRow:
        """Return the row of an answer."""
        return next(each for each in self.rows if each.answer == answer)


def forgotten(
    each: ForgettingSet,
    models: int,
    out: Path | None = None,
    observe: Callable[[int], None] = lambda _: None,
) -> Forgotten:
    """Play a federation from so many seeds, or read what lies in the folder, and judge."""
    played: list[SeedResult] = []
    others: list[Seen] = []
    kept = _Kept(out, each)
    for seed in range(models):
        played.append(kept.of(seed, SeedResult, lambda s=seed: seed_result(each, s)))
        apart = APART + seed
        others.append(kept.of(apart, Seen, lambda s=apart: never_met(each, s)))
        observe(seed + 1)
    return _judged(each, played, others)


def forgetting_checks(found: Sequence[Forgotten]) -> tuple[Check, ...]:
    """Return whether exact answers are at the control's level, and denials are not."""
    return tuple(check for each in found for check in _checks(each))


def _checks(each: Forgotten) -> Iterator[Check]:
    high, name = each.control.high, each.name
    nothing = each.row(NOTHING).epsilon.mean
    yield Check(f"{name}: {NOTHING}", nothing, f"above {high:.3f}", nothing > high)
    for row in each.rows:
        mean = row.epsilon.mean
        if row.answer in EXACT:
            limit = f"at most {high:.3f}"
            yield Check(f"{name}: {row.answer}", mean, limit, mean <= high)
        if row.answer == "deny":
            limit = f"{nothing:.3f}, as {NOTHING}"
            yield Check(f"{name}: deny", mean, limit, mean == nothing)


def _judged(
    each: ForgettingSet, played: Sequence[SeedResult], others: Sequence[Seen]
) -> Forgotten:
    own, fresh = _confidences(others), _fresh(others)

    def row(
        answer: str, seen: Sequence[Seen], told: Sequence[Answered]
    ) -> ForgottenRow:
        leaver, unseen = _confidences(seen), _fresh(seen)
        found = epsilons(leaver, own)
        rounds = [a.from_round for a in told if a.from_round is not None]
        pairs = list(zip(played, seen, strict=True))
        return ForgottenRow(
            answer=answer,
            epsilon=summary_of(found),
            per_example=tuple(found.tolist()),
            fresh=summary_of(epsilons(unseen, fresh)),
            moved=(
                float(leaver.mean() - own.mean()),
                float(unseen.mean() - fresh.mean()),
            ),
            accuracy=fmean(s.accuracy for s in seen),
            given=dict(Counter(a.answer for a in told)),
            same_bits=sum(s.model_hash == p.never.model_hash for p, s in pairs),
            weights_apart=max((a.weights_apart for a in told), default=0.0),
            as_before=sum(s.model_hash == p.met.model_hash for p, s in pairs),
            from_round=fmean(rounds) if rounds else None,
            sums_tell=_count(a.sums_tell for a in told),
        )

    met, never = [p.met for p in played], [p.never for p in played]
    answers = {name: [p.answers[name] for p in played] for name in each.answers}
    rows = [row(NOTHING, met, ())]
    rows += [row(name, [a.seen for a in told], told) for name, told in answers.items()]
    rows.append(row(NEVER, never, ()))
    control = control_range(_confidences([*never, *others]), Streams(0))
    leaks = _leaks(each, played, others)
    return Forgotten(each.name, len(played), control, tuple(rows), leaks)


def _leaks(
    each: ForgettingSet, played: Sequence[SeedResult], others: Sequence[Seen]
) -> Mapping[str, Leaked]:
    """Return what models before and after each answer tell, and what never-met ones do."""
    after = {name: [p.answers[name].seen for p in played] for name in each.answers}
    for name in each.together:
        after[f"{name}, four at once"] = [p.together[name] for p in played]
    after[ANOTHER] = list(others)
    met, never = [p.met for p in played], [p.never for p in played]
    pairs = {name: list(zip(met, own, strict=True)) for name, own in after.items()}
    pairs[NOTHING] = list(zip(met, met, strict=True))
    pairs[NEVER] = list(zip(never, others, strict=True))
    return {name: leaked(own) for name, own in pairs.items()}


def _count(told: Iterable[bool | None]) -> int | None:
    known = [each for each in told if each is not None]
    return sum(known) if known else None


def _confidences(seen: Sequence[Seen]) -> np.ndarray:
    return np.array([each.leaver for each in seen], dtype=np.float64)


def _fresh(seen: Sequence[Seen]) -> np.ndarray:
    return np.array([each.fresh for each in seen], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class _Kept:
    """Seeds that were played, each in a file of its own."""

    out: Path | None
    each: ForgettingSet

    def of(self, seed: int, kind: type[Kept], play: Callable[[], Kept]) -> Kept:
        """Return what was played of this seed with these settings; else play it."""
        if self.out is None:
            return play()
        path = self.out / f"{self.each.name.replace(' ', '-')}-{seed:04d}.json"
        if path.is_file():
            told = json.loads(path.read_text(encoding="utf-8"))
            if told["set"] == self._plain():
                return TypeAdapter(kind).validate_python(told["found"])
        found = play()
        self.out.mkdir(parents=True, exist_ok=True)
        both = {"set": self._plain(), "found": asdict(found)}
        replace_whole(path, json.dumps(both).encode())
        return found

    def _plain(self) -> Any:  # noqa: ANN401 - JSON
        return json.loads(json.dumps(asdict(self.each)))
