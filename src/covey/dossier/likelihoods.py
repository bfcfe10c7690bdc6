"""The two likelihoods of EDPB opinion 28/2024, and what a run knows of each.

The opinion (its summary, first question) asks of a model that was trained on personal
data how likely it is that they can be extracted from the model, and how likely that they
come out of queries to it.
A run's figures are evidence for an answer, and never the answer itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from covey.report.attacks import LOSS

__all__ = ["likelihoods"]

NEVER_TRIED = (
    "No attack was run that reconstructs records from a model's parameters: covey has "
    "none. Nothing here says that it would fail."
)
NO_GUARANTEE = "No differential privacy guarantee bounds it"
QUERIES_ARE = (
    "Membership inference uses the losses that queries give: it says whether a record was "
    "trained on, to who already has the record, and nothing about who has not."
)
NOT_TRIED_QUERIES = (
    "Whether a model's answers repeat records to who does not have them was not tried."
)


def likelihoods(
    facts: Mapping[str, Any], attacks: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, list[str]]]:
    """Return, for extraction and for queries, what was measured and what is unknown.

    Args:
        facts: as `dossier_facts` returns them.
        attacks: rows of the audits that were run after training.
    """
    bounds = list(_bounds(facts))
    none = f"{NO_GUARANTEE}: {facts['guarantee_reason'] or 'no noise was added'}."
    unbounded = [] if bounds else [none]
    return {
        "extraction": {"measured": bounds, "unknown": [NEVER_TRIED, *unbounded]},
        "queries": {
            "measured": [*bounds, *_attacked(facts), *map(_audited, attacks)],
            "unknown": [
                QUERIES_ARE,
                NOT_TRIED_QUERIES,
                *_unmeasured(facts),
                *unbounded,
            ],
        },
    }


def _bounds(facts: Mapping[str, Any]) -> Iterator[str]:
    for each in facts["guarantees"]:
        if each["epsilon"] is not None:
            yield (
                f"Differential privacy of each {each['unit']}: epsilon "
                f"{each['epsilon']:.3g} at delta {each['delta']:.1g} against "
                f"{each['adversary']}. It holds only if: {'; '.join(each['holds_if'])}. "
                f"It does not cover: {'; '.join(each['does_not_cover'])}."
            )


def _attacked(facts: Mapping[str, Any]) -> Iterator[str]:
    for each in facts["models"]:
        j = each["cluster"]
        if each["true_risk"] is not None:
            yield (
                f"Model {j}: a loss threshold told members from matched non-members with "
                f"balanced accuracy "
                f"{_with_interval(each['true_risk'], each['true_risk_standard_error'])}; "
                f"0.5 is a coin. {each['true_risk_reason']}".strip()
            )
        found = each["strongest_attack"]
        if found is not None and found["attack"] != LOSS:
            yield (
                f"Model {j}: the strongest attack, {found['attack']}, reached balanced "
                f"accuracy {_with_interval(found['risk'], found['standard_error'])}."
            )
        if each["risk"] is not None:
            yield (
                f"Model {j}: the red team ({each['source']}) measured "
                f"{_with_interval(each['risk'], each['risk_standard_error'])}."
            )


def _with_interval(value: float, standard_error: float | None) -> str:
    if standard_error is None:
        return f"{value:.3f} (standard error unknown)"
    return f"{value:.3f} ± {1.96 * standard_error:.3f} (95%)"


def _unmeasured(facts: Mapping[str, Any]) -> Iterator[str]:
    for each in facts["models"]:
        figures = (each["true_risk"], each["strongest_attack"], each["risk"])
        if all(figure is None for figure in figures):
            why = each["reason"] or each["true_risk_reason"]
            yield f"Model {each['cluster']}: its membership risk is unknown: {why}."


def _audited(row: Mapping[str, Any]) -> str:
    return (
        f"Model {row['cluster']}: the attack {row['attack']} of an audit after training, "
        f"by the run's operator, reached balanced accuracy {row['balanced_accuracy']} "
        f"and AUC {row['auc']}."
    )
