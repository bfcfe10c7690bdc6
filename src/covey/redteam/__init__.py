"""Membership inference against the cluster models, on purpose and with doubt."""

from covey.redteam.assessment import (
    DIVERGED,
    EXTRAPOLATED,
    Assessment,
    Profile,
    RedTeam,
    ShadowFederation,
    Target,
)
from covey.redteam.attacks import Rates, auc, best_threshold, cross_fitted, rates_at
from covey.redteam.audit import FEDMIA, Auditor, ClusterExamined, examined
from covey.redteam.blind import blind_baseline
from covey.redteam.controls import negative_control, positive_control
from covey.redteam.counts import EDGES, FOLDS, loss_counts
from covey.redteam.federation import Laboratory
from covey.redteam.figures import FEWEST, Figure, stratified
from covey.redteam.guessing import (
    STALLED,
    Constant,
    best_constant,
    broken,
    guarded,
    has_finite_examples,
    no_better_than_guessing,
)
from covey.redteam.intervals import Estimate, Verdict, verdict
from covey.redteam.named import ATTACKS, Attack
from covey.redteam.ownership import Attribution, attribution, source_of
from covey.redteam.profiles import Profiler, inferred, reported
from covey.redteam.references import Retrial
from covey.redteam.shadow import shadow
from covey.redteam.signals import Signals
from covey.redteam.slices import QUARTERS, AttackFigures
from covey.redteam.sources import (
    Count,
    SelfJudge,
    counting,
    federated,
    oracle,
    self_judge,
)
from covey.redteam.truth import (
    Membership,
    Reference,
    audited,
    blind_risk,
    true_risk,
    unjudged,
)
from covey.redteam.updates import fedmia

__all__ = [
    "ATTACKS",
    "DIVERGED",
    "EDGES",
    "EXTRAPOLATED",
    "FEDMIA",
    "FEWEST",
    "FOLDS",
    "QUARTERS",
    "STALLED",
    "Assessment",
    "Attack",
    "AttackFigures",
    "Attribution",
    "Auditor",
    "ClusterExamined",
    "Constant",
    "Count",
    "Estimate",
    "Figure",
    "Laboratory",
    "Membership",
    "Profile",
    "Profiler",
    "Rates",
    "RedTeam",
    "Reference",
    "Retrial",
    "SelfJudge",
    "ShadowFederation",
    "Signals",
    "Target",
    "Verdict",
    "attribution",
    "auc",
    "audited",
    "best_constant",
    "best_threshold",
    "blind_baseline",
    "blind_risk",
    "broken",
    "counting",
    "cross_fitted",
    "examined",
    "federated",
    "fedmia",
    "guarded",
    "has_finite_examples",
    "inferred",
    "loss_counts",
    "negative_control",
    "no_better_than_guessing",
    "oracle",
    "positive_control",
    "rates_at",
    "reported",
    "self_judge",
    "shadow",
    "source_of",
    "stratified",
    "true_risk",
    "unjudged",
    "verdict",
]
