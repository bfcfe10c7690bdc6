"""Membership inference against the cluster models, on purpose and with doubt."""

from covey.membership.assessment import (
    Assessment,
    Profile,
    RedTeam,
    SelfJudge,
    Target,
)
from covey.membership.attack_base import Attack, Scorer
from covey.membership.attacks import Rates, auc, best_threshold, cross_fitted, rates_at
from covey.membership.audit import FEDMIA, Auditor, ClusterExamined, examined
from covey.membership.base import Count, RiskContext, RiskEstimator
from covey.membership.blind import blind_baseline
from covey.membership.client_estimator import self_judge
from covey.membership.cluster_profile import Profiler, inferred, reported
from covey.membership.controls import negative_control, positive_control
from covey.membership.estimates import (
    DIVERGED,
    EXTRAPOLATED,
    FEWEST,
    Finding,
    RiskEstimate,
    Withheld,
    stratified,
)
from covey.membership.federated_estimator import counting
from covey.membership.fedmia_attack import fedmia
from covey.membership.ground_truth import (
    Membership,
    Reference,
    audited,
    blind_risk,
    true_risk,
    unjudged,
)
from covey.membership.guessing import (
    STALLED,
    Constant,
    best_constant,
    broken,
    guarded,
    has_finite_examples,
    no_better_than_guessing,
)
from covey.membership.intervals import Estimate, Verdict, verdict
from covey.membership.loss_histograms import EDGES, FOLDS, loss_counts
from covey.membership.references import PlayRound, Retrial
from covey.membership.shadow_federation import (
    Laboratory,
    ShadowFederation,
    ShadowFederations,
)
from covey.membership.signals import Signals
from covey.membership.source_inference import Attribution, attribution, source_of
from covey.membership.subgroups import QUARTERS, AttackFigures

__all__ = [
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
    "Finding",
    "Laboratory",
    "Membership",
    "PlayRound",
    "Profile",
    "Profiler",
    "Rates",
    "RedTeam",
    "Reference",
    "Retrial",
    "RiskContext",
    "RiskEstimate",
    "RiskEstimator",
    "Scorer",
    "SelfJudge",
    "ShadowFederation",
    "ShadowFederations",
    "Signals",
    "Target",
    "Verdict",
    "Withheld",
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
    "fedmia",
    "guarded",
    "has_finite_examples",
    "inferred",
    "loss_counts",
    "negative_control",
    "no_better_than_guessing",
    "positive_control",
    "rates_at",
    "reported",
    "self_judge",
    "source_of",
    "stratified",
    "true_risk",
    "unjudged",
    "verdict",
]
