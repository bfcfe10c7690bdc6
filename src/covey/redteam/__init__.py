"""Membership inference against the cluster models, on purpose and with doubt."""

from covey.redteam.assessment import Assessment, RedTeam, ShadowFederation, Target
from covey.redteam.attacks import Rates, auc, best_threshold, cross_fitted, rates_at
from covey.redteam.blind import blind_baseline
from covey.redteam.federation import Laboratory
from covey.redteam.figures import Figure, stratified
from covey.redteam.shadow import shadow
from covey.redteam.sources import federated, oracle
from covey.redteam.truth import Membership, Reference, audited, true_risk

__all__ = [
    "Assessment",
    "Figure",
    "Laboratory",
    "Membership",
    "Rates",
    "RedTeam",
    "Reference",
    "ShadowFederation",
    "Target",
    "auc",
    "audited",
    "best_threshold",
    "blind_baseline",
    "cross_fitted",
    "federated",
    "oracle",
    "rates_at",
    "shadow",
    "stratified",
    "true_risk",
]
