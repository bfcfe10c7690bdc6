"""Membership inference against the cluster models, on purpose and with doubt."""

from covey.membership.assessment import (
    Assessment,
    Profile,
    RedTeam,
    SelfAssessment,
    Target,
)
from covey.membership.attack_base import Attack, Scorer
from covey.membership.attacks import Rates, auc, best_threshold, cross_fitted, rates_at
from covey.membership.audit import (
    FEDMIA,
    WEIGHTS,
    Auditor,
    ClusterAuditResult,
    examine_cluster,
)
from covey.membership.audit_set import Candidates, strata_of
from covey.membership.base import Count, CountAll, RiskContext, RiskEstimator
from covey.membership.blind import blind_baseline
from covey.membership.client_estimator import self_estimates
from covey.membership.controls import negative_control, positive_control
from covey.membership.copies import copied
from covey.membership.estimates import (
    DIVERGED,
    EXTRAPOLATED,
    MIN_RECORDS,
    Finding,
    RiskEstimate,
    Withheld,
    stratified,
)
from covey.membership.federated_estimator import own_counts
from covey.membership.fedmia_attack import fedmia
from covey.membership.ground_truth import (
    Membership,
    Reference,
    audit_clusters,
    blind_risk,
    true_risk,
    without_estimate,
)
from covey.membership.guessing import (
    STALLED,
    ConstantPredictor,
    best_constant,
    has_finite_examples,
    has_non_finite_values,
    no_better_than_guessing,
    unless_diverged,
)
from covey.membership.intervals import (
    AttackMetrics,
    Estimate,
    attack_metrics,
    clopper_pearson,
)
from covey.membership.lira import lira_online
from covey.membership.loss_histograms import (
    EDGES,
    FOLDS,
    combined_counts,
    loss_counts,
)
from covey.membership.loss_spreads import (
    loss_drop,
    loss_spread,
    precision_at,
    top_share,
)
from covey.membership.masked_counts import masked_loss_counter
from covey.membership.references import PlayRound, RetrainRecipe, halves
from covey.membership.shadow_federation import (
    ShadowFederation,
    ShadowFederations,
    ShadowSetup,
)
from covey.membership.signals import Signals, logit
from covey.membership.source_inference import Attribution, attribution, source_of
from covey.membership.subgroups import QUARTERS, AttackFigures
from covey.membership.weights_attack import MAX_POOL, Equations, membership_weights

__all__ = [
    "DIVERGED",
    "EDGES",
    "EXTRAPOLATED",
    "FEDMIA",
    "FOLDS",
    "MAX_POOL",
    "MIN_RECORDS",
    "QUARTERS",
    "STALLED",
    "WEIGHTS",
    "Assessment",
    "Attack",
    "AttackFigures",
    "AttackMetrics",
    "Attribution",
    "Auditor",
    "Candidates",
    "ClusterAuditResult",
    "ConstantPredictor",
    "Count",
    "CountAll",
    "Equations",
    "Estimate",
    "Finding",
    "Membership",
    "PlayRound",
    "Profile",
    "Rates",
    "RedTeam",
    "Reference",
    "RetrainRecipe",
    "RiskContext",
    "RiskEstimate",
    "RiskEstimator",
    "Scorer",
    "SelfAssessment",
    "ShadowFederation",
    "ShadowFederations",
    "ShadowSetup",
    "Signals",
    "Target",
    "Withheld",
    "attack_metrics",
    "attribution",
    "auc",
    "audit_clusters",
    "best_constant",
    "best_threshold",
    "blind_baseline",
    "blind_risk",
    "clopper_pearson",
    "combined_counts",
    "copied",
    "cross_fitted",
    "examine_cluster",
    "fedmia",
    "halves",
    "has_finite_examples",
    "has_non_finite_values",
    "lira_online",
    "logit",
    "loss_counts",
    "loss_drop",
    "loss_spread",
    "masked_loss_counter",
    "membership_weights",
    "negative_control",
    "no_better_than_guessing",
    "own_counts",
    "positive_control",
    "precision_at",
    "rates_at",
    "self_estimates",
    "source_of",
    "strata_of",
    "stratified",
    "top_share",
    "true_risk",
    "unless_diverged",
    "without_estimate",
]
