"""From a model's answers to figures: controls first, then the attacks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from covey.auditor.answers import Answers
from covey.auditor.exposure import exposed_of, exposures_of
from covey.auditor.records import Records
from covey.auditor.reference_models import Provide, References
from covey.auditor.result import Control, ModelAudit
from covey.membership import (
    DIVERGED,
    MIN_RECORDS,
    AttackFigures,
    Reference,
    RiskEstimate,
    Scorer,
    Signals,
    blind_risk,
    negative_control,
    no_better_than_guessing,
)
from covey.membership.audit import NO_REFERENCE, scored_by
from covey.membership.audit_set import Candidates, strata_of
from covey.membership.ground_truth import beats_chance, refusal_reason
from covey.membership.subgroups import attack_figures
from covey.params import not_finite
from covey.rng import Streams
from covey.types import Params

__all__ = ["Examination", "too_few", "without_figures"]

HOLDOUTS = Reference(())
ENGINE = Answers()
REMEDY = (
    "Take non-members from where the members come from: split one data set at random "
    "before training"
)
NO_REFERENCES = (
    "withheld: it learns from reference models, and there are none. Pass references, or a "
    "function that trains them (--train)"
)
TOO_FEW = {
    "outside": "withheld: it needs a reference that was not trained on a record, for "
    "every record",
    "both": "withheld: it needs a reference that was trained on a record and one that was "
    "not, for every record (lira-offline and rmia-offline need the latter alone)",
}


@dataclass(frozen=True, slots=True, eq=False)
class Examination:
    """One audit under way.

    Attributes:
        answers: the model's, for all records.
        provide: None: there are no references.
    """

    records: Records
    answers: Params
    attacks: Mapping[str, Scorer]
    provide: Provide | None
    streams: Streams
    controls: dict[str, Control] = field(default_factory=dict[str, Control])

    def result(self, diverged: str) -> ModelAudit:
        """Return the figures, or the first reason why there can be none."""
        reason = diverged and f"{DIVERGED}: {diverged}"
        reason = reason or self._guessing() or self._mismatch()
        strata = strata_of((self.records.numbers,), HOLDOUTS, self.streams)
        candidates = Candidates.of(strata)
        if reason or candidates is None:
            return without_figures(self.records, reason, self.controls)
        return self._judged(candidates)

    def _guessing(self) -> str:
        why = no_better_than_guessing(
            ENGINE, self.answers, [self.records.numbers], whose="the members"
        )
        return why and (
            f"{DIVERGED}: {why}. Prepare inputs as in training, and number the classes "
            f"alike: whatever answers nothing looks private, and is no model"
        )

    def _mismatch(self) -> str:
        """Say why the sides do not match; "" if nothing shows that they do not."""
        at = self.streams.at("inputs")
        found = blind_risk((self.records.sides,), HOLDOUTS, at)
        if found is None:
            return ""
        differs = beats_chance(found)
        self.controls["blind"] = _control(found, holds=not differs)
        return f"{refusal_reason(found)}. {REMEDY}" if differs else ""

    def _judged(self, candidates: Candidates) -> ModelAudit:
        unseen = self.records.numbers.holdout
        if len(unseen) >= 2 * MIN_RECORDS:
            at = self.streams.at("negative control")
            found = negative_control(ENGINE, self.answers, unseen, at)
            near = abs(found.risk - 0.5) <= 3 * found.standard_error
            self.controls["unseen"] = _control(found, holds=near)
        provide = self.provide or _no_references
        told = provide(candidates, self.streams)
        withheld = {
            name: why
            for name, attack in self.attacks.items()
            if (why := _withheld(attack, told))
        }
        if _any_diverged(told):
            told = _no_references(candidates, self.streams)
        signals = _signals(self.answers, told, candidates)
        return ModelAudit(
            members=int(candidates.member.sum()),
            non_members=int((~candidates.member).sum()),
            background=sum(len(each.background) for each in candidates.strata),
            shared=self.records.shared,
            references=len(told.answers),
            reason="",
            withheld=withheld,
            controls=self.controls,
            accuracies=_accuracies(signals, candidates),
            attacks={
                name: self._figures(name, attack, candidates, signals)
                for name, attack in self.attacks.items()
                if name not in withheld
            },
            exposures=exposures_of(self.records, candidates, signals),
            exposed=exposed_of(candidates, signals),
        )

    def _figures(
        self, name: str, attack: Scorer, candidates: Candidates, signals: Signals
    ) -> AttackFigures:
        scores = scored_by(name, attack, signals)
        return attack_figures(scores, candidates, signals, self.streams.at("verdict"))


def too_few(records: Records) -> str:
    """Say that a side has too few records to be judged; "" if both have enough."""
    inside = int(records.member.sum())
    outside = len(records.member) - inside
    if min(inside, outside) >= MIN_RECORDS:
        return ""
    left = f", and {records.shared} on both sides" if records.shared else ""
    return (
        f"too few records: each side needs at least {MIN_RECORDS} that the other does not "
        f"hold, found {inside} members and {outside} non-members{left}. Bring more"
    )


def without_figures(
    records: Records,
    reason: str,
    controls: Mapping[str, Control] = MappingProxyType({}),
) -> ModelAudit:
    """Return an audit that found nothing, and why."""
    return ModelAudit(
        members=int(records.member.sum()),
        non_members=int((~records.member).sum()),
        background=0,
        shared=records.shared,
        references=0,
        reason=reason,
        withheld={},
        controls=controls,
        accuracies={},
        attacks={},
    )


def _no_references(candidates: Candidates, _: Streams) -> References:
    return References((), np.zeros((len(candidates.labels), 0), dtype=bool))


def _any_diverged(references: References) -> bool:
    return any(map(not_finite, references.answers))


def _signals(answers: Params, references: References, judged: Candidates) -> Signals:
    numbers = judged.examples.inputs

    def asked(params: Params) -> np.ndarray:
        (table,) = params.values()
        return table[numbers].numpy()

    target = asked(answers)
    others = [asked(each) for each in references.answers]
    stacked = np.stack([target, *others], axis=1)[:, 1:]
    return Signals(judged.labels, target, stacked, references.inside)


def _withheld(attack: Scorer, references: References) -> str:
    """Say why an attack cannot be run with these references; "" if it can."""
    needs = getattr(attack, "needs", "both")
    if needs == "none":
        return ""
    if not references.answers:
        return NO_REFERENCES
    if _any_diverged(references):
        return NO_REFERENCE
    outside = (~references.inside).any(axis=1).all()
    inside = references.inside.any(axis=1).all()
    enough = outside and (inside or needs == "outside")
    return "" if enough else TOO_FEW[needs]


def _accuracies(signals: Signals, judged: Candidates) -> dict[str, float]:
    right = signals.target.argmax(axis=1) == signals.labels
    found = {
        "members": float(right[judged.member].mean()),
        "non_members": float(right[~judged.member].mean()),
    }
    if signals.references.size:
        theirs = signals.references.argmax(axis=2) == signals.labels[:, None]
        for side, chosen in (("inside", signals.inside), ("outside", ~signals.inside)):
            if chosen.any():
                found[f"references_{side}"] = float(theirs[chosen].mean())
    return found


def _control(found: RiskEstimate, *, holds: bool) -> Control:
    return Control(found.risk, found.standard_error, found.auc, holds)
