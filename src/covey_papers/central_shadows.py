"""The IFCA-MIR paper's red team, literally: central shadow models, an attack on confidences.

References:
    Jung, Biswas, Palamidessi, IFCA-MIR, 2025, section 2.2 and Algorithm 2 (TrainMIA).
    Shokri, Stronati, Song, Shmatikov, Membership Inference Attacks Against Machine
    Learning Models, 2017: one attack model per class, of 64 hidden ReLU.
"""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from pydantic import Field
from threadpoolctl import threadpool_limits
from torch import Tensor

from covey import (
    Examples,
    Objective,
    Params,
    Recipe,
    RiskContext,
    RiskEstimate,
    RiskEstimator,
    ScoringJob,
    Streams,
    Target,
    TrainingJob,
)
from covey.base.params import not_finite
from covey.data.partition import apportion
from covey.membership.attacks import auc
from covey.membership.intervals import MIN_RECORDS
from covey.membership.shadow import predicted
from covey.settings.rules import ONE_CLASS, Clash, SettingsConflict
from covey.settings.schema import Sections

LARGEST_SHARE = 0.9
"""Of D_shadow, so much trains a shadow at most: the rest are its non-members."""

HIDDEN = 64
STEPS = 200
"""Of L-BFGS on an attack model, at most: Adam takes thousands on so few records."""


@dataclass(frozen=True, slots=True, eq=False)
class ShadowSplit:
    """D_shadow as one shadow sees it: what it trains on, and what it does not."""

    members: Examples
    non_members: Examples


@dataclass(frozen=True, slots=True, eq=False)
class AttackData:
    """The attack data set: (S_z, y) of every z of D_shadow, and its class.

    Attributes:
        confidences: S_z, what a model says of z: probabilities that add up to 1.
        labels: the class of z.
        member: y, whether z trained the model.
    """

    confidences: Float[ndarray, "records classes"]
    labels: Int[ndarray, " records"]
    member: Bool[ndarray, " records"]


AttackModel = Callable[[AttackData], Float[ndarray, " records"]]
"""The attack model A: the probability that a record is a member; it never looks at `member`."""


class CentralShadows(RiskEstimator):
    """Attack models that are trained centrally on the server's own images, as published.

    A central model memorises otherwise than a federated one, so the figure is not calibrated;
    clients choose by it all the same, and no report counts it. It is measured anew each time:
    `population.pool` and the rounds so far decide how long that takes.

    Attributes:
        shadows: shadow models per cluster.
    """

    needs_client_data: ClassVar[bool] = False
    needs_pool: ClassVar[bool] = True
    note: ClassVar[str] = (
        "Clients saw the risk of shadow models that the server trained centrally: as published, "
        "not calibrated."
    )

    shadows: Annotated[int, Field(ge=2)] = 3

    def conflicts(self, settings: Sections) -> Iterator[SettingsConflict | Clash]:
        """Refuse what has no confidences, and methods that train nothing to imitate."""
        key = "risk.name"
        yield Clash(settings.model.task != "multiclass", key, ONE_CLASS, "model.task")
        yield Clash(not settings.method.traits.trains, key, "clients that train", "method.name")

    def estimate(self, target: Target, context: RiskContext, streams: Streams) -> RiskEstimate:
        """Return l(theta_j) = (TPR + TNR) / 2 of the shadows' attack model (Algorithm 2).

        Line 8 leaves open whose rates these are. The server has no member of theta_j, so the
        rates are each shadow's under an A that the other shadows trained, and their mean is
        returned. The last A is applied to theta_j, too: its TNR there is exact, as all of
        D_shadow are non-members, and is said beside the figure.
        """
        if not target.members:
            return RiskEstimate.unknown("no client has chosen this cluster")
        cluster, pool = sum(len(member.train) for member in target.members), len(context.pool)
        count = min(cluster, int(LARGEST_SHARE * pool))
        if min(count, pool - count) < MIN_RECORDS:
            return RiskEstimate.unknown(
                f"a shadow needs {MIN_RECORDS} members and {MIN_RECORDS} non-members, and the "
                f"cluster has {cluster} examples and the server's pool {pool}"
            )
        each_shadow = [streams.at("shadow", k) for k in range(self.shadows)]
        splits = [split_pool(target, context, count, at) for at in each_shadow]
        # line 1: train multiple shadow models on D_shadow
        shadows = trained_shadows(splits, target, context, each_shadow)
        if any(not_finite(params) for params in shadows):
            return RiskEstimate.unknown("its shadow models diverged")
        # lines 3-6: construct the attack data set
        rows = [attack_data(*shadow, context) for shadow in zip(shadows, splits, strict=True)]
        own = attack_data(target.params, splits[0], context)
        if not all(np.isfinite(row.confidences).all() for row in (*rows, own)):
            return RiskEstimate.unknown("a model answers with confidences that are not finite")
        # lines 7-8: train A, and judge it on the shadow that it has not seen
        estimates = list[RiskEstimate]()
        for k, judged in enumerate(rows):
            others = rows[:k] + rows[k + 1 :]
            estimates.append(judge(attack_model(others, streams.at("attack", k)), judged))
        a = attack_model(rows, streams.at("attack", self.shadows))
        tnr = float(np.mean(a(own) <= 0.5))
        rests_on = (
            f"as published, not calibrated: {self.shadows} central shadow models of {count} "
            f"members and {pool - count} non-members, the cluster has {cluster} members; on its "
            f"own model the attack is right on {tnr:.3f} of the pool, which are non-members"
        )
        return replace(predicted(estimates), calibrated=False, steers=True, rests_on=rests_on)


def split_pool(target: Target, context: RiskContext, count: int, streams: Streams) -> ShadowSplit:
    """Deal D_shadow to `count` members and the non-members, both in the cluster's mix of groups."""
    generator, mix = streams.at("pool").generator(), Counter[int]()
    for client in target.members:
        mix[client.group or 0] += len(client.train)
    groups = sorted(mix)

    def shifted(rows: Tensor) -> Examples:
        blocks = rows.split(apportion(len(rows), [mix[group] for group in groups]))
        raw = [context.pool.take(block) for block in blocks]
        return Examples.joined(
            [
                Examples(context.shifts[group].shifted(value.inputs, generator), value.labels)
                for group, value in zip(groups, raw, strict=True)
            ]
        )

    order = torch.from_numpy(generator.permutation(len(context.pool)))
    return ShadowSplit(shifted(order[:count]), shifted(order[count:]))


def trained_shadows(
    splits: Sequence[ShadowSplit], target: Target, context: RiskContext, streams: Sequence[Streams]
) -> list[Params]:
    """Train each shadow from a model of its own, as often over its members as clients did.

    One learner trains by the run's local recipe, and by as many passes in each round as a
    client that takes part makes.
    """
    per_client = sum(len(member.train) for member in target.members) / len(target.members)
    shadows = [context.init(at.at("initial model")) for at in streams]
    for t in range(target.round_index):
        recipe = context.recipe(t)
        jobs = [
            TrainingJob(
                params,
                split.members,
                at.at("round", t),
                centrally(recipe, len(split.members) / per_client),
            )
            for params, split, at in zip(shadows, splits, streams, strict=True)
        ]
        shadows = list(context.engine.train(jobs))
    return shadows


def centrally(recipe: Recipe, times: float) -> Recipe:
    """Return a client's recipe for one learner with so many times its examples.

    It makes as many passes, so more steps; it has no shared model that an objective could
    hold it near.
    """
    return replace(
        recipe,
        local_steps=math.ceil(recipe.local_steps * times),
        least_steps=math.ceil(recipe.least_steps * times),
        objective=Objective(),
    )


def attack_data(params: Params, split: ShadowSplit, context: RiskContext) -> AttackData:
    """Return (S_z, y) of every z of D_shadow under a model, S_z its confidences."""
    sides = split.members, split.non_members
    scored = context.engine.score([ScoringJob(params, side) for side in sides])
    log_probs = [row.log_probs for row in scored if row.log_probs is not None]
    return AttackData(
        confidences=torch.cat(log_probs).double().exp().numpy(),
        labels=torch.cat([side.labels for side in sides]).numpy(),
        member=np.repeat([True, False], [len(side) for side in sides]),
    )


def attack_model(rows: Sequence[AttackData], streams: Streams) -> AttackModel:
    """Train the attack model A: a network per class, on as many members as non-members.

    (TPR + TNR) / 2 weighs both sides alike, so A sees both alike. A class that lacks one side
    is answered by 1/2.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    generator = streams.generator()
    confidences = np.concatenate([row.confidences for row in rows])
    labels = np.concatenate([row.labels for row in rows])
    member = np.concatenate([row.member for row in rows])
    networks = dict[int, MLPClassifier]()
    for c in np.unique(labels).tolist():
        sides = [np.flatnonzero((labels == c) & (member == side)) for side in (True, False)]
        if count := min(map(len, sides)):
            chosen = np.concatenate([generator.permutation(side)[:count] for side in sides])
            seed = int(generator.integers(2**31))
            network = MLPClassifier((HIDDEN,), solver="lbfgs", max_iter=STEPS, random_state=seed)
            # one thread: the order of sums must not depend on the machine
            with threadpool_limits(1), warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # as far as it came
                networks[c] = network.fit(confidences[chosen], member[chosen])

    def a(data: AttackData) -> Float[ndarray, " records"]:
        risks = np.full(len(data.labels), 0.5)
        for c, network in networks.items():
            of_class = data.labels == c
            if of_class.any():
                risks[of_class] = np.asarray(network.predict_proba(data.confidences[of_class]))[
                    :, 1
                ]
        return risks

    return a


def judge(a: AttackModel, data: AttackData) -> RiskEstimate:
    """Return (TPR + TNR) / 2 of an attack model on records that it has not seen."""
    scores = a(data)
    members, others = scores[data.member], scores[~data.member]
    return RiskEstimate.of_rates(
        float(np.mean(members > 0.5)),
        float(np.mean(others <= 0.5)),
        len(members),
        len(others),
        auc=auc(members, others),
    )
