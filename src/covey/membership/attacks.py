"""Attacks on single records by a model's answers: loss, entropy, LiRA, RMIA, shadows, FedMIA.

Every attack is a function of arrays that returns a score per record; records with higher scores
are more likely members. Thresholds on scores, their rates and rankings are here as well.

References:
    Song, Mittal, Systematic Evaluation of Privacy Risks of Machine Learning Models, 2021.
    Carlini, Chien, Nasr, Song, Terzis, Tramèr, Membership Inference Attacks From First
    Principles, 2022, Algorithm 1 and sections IV-C, V.
    Zarifzadeh, Liu, Shokri, Low-Cost High-Power Membership Inference Attacks, 2024,
    Eq. 2-4 and 10, Algorithm 1.
    Shokri, Stronati, Song, Shmatikov, Membership Inference Attacks Against Machine
    Learning Models, 2017. Features as in the better attacks since; a linear classifier.
    Brännvall, Exponential-Family Membership Inference: From LiRA and RMIA to BaVarIA, 2026.
    Smyth, Linear Models and Empirical Bayes Methods for Assessing Differential Expression,
    2004, section 6.2, for the prior of variances.
    Nasr, Shokri, Houmansadr, Comprehensive Privacy Analysis of Deep Learning, 2019.
    Zhu, Liu, Gong, Xu, Li, Fan, FedMIA: An Effective Membership Inference Attack
    Exploiting the "All for One" Principle in Federated Learning, CVPR 2025.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from pydantic import Field

from covey.base.built_ins import component
from covey.base.components import Component, OwnFunction, Share
from covey.base.errors import ConfigError
from covey.base.figure import RiskEstimate
from covey.base.names import Params

MIN_REFERENCES = {"global": 1, "per-example": 2, "bayesian-n": 2, "bayesian-t": 2}

SMALLEST = 1e-6
"""Of a deviation: below it, a difference would count without bounds."""

MIN_OTHERS = 2


def scores_of(losses: Float[ndarray, " records"]) -> Float[ndarray, " records"]:
    """Return minus the losses; a diverged one (NaN) is the least member-like of all."""
    return -np.nan_to_num(losses, nan=np.inf, posinf=np.inf)


def auc(members: Float[ndarray, " members"], non_members: Float[ndarray, " others"]) -> float:
    """Return the probability that a member scores higher; ties count half."""
    from scipy.stats import rankdata

    ranks = rankdata(np.concatenate([members, non_members]))
    n1, n0 = len(members), len(non_members)
    return float((ranks[:n1].sum() - n1 * (n1 + 1) / 2) / (n1 * n0))


def best_threshold(
    members: Float[ndarray, " members"], non_members: Float[ndarray, " others"]
) -> float:
    """Return the score from which on "member" is the most accurate answer.

    argmax_c  P[score >= c | member] + P[score < c | non-member]
    """
    candidates = np.unique(np.concatenate([members, non_members]))
    missed = np.searchsorted(np.sort(members), candidates) / len(members)
    rejected = np.searchsorted(np.sort(non_members), candidates) / len(non_members)
    return float(candidates[np.argmax(rejected - missed)])


def risk_at(
    threshold: float, members: Float[ndarray, " members"], non_members: Float[ndarray, " others"]
) -> RiskEstimate:
    """Return the risk by "member if score >= threshold", fitted on other records."""
    return RiskEstimate.of_rates(
        *_rates_at(threshold, members, non_members),
        len(members),
        len(non_members),
        auc=auc(members, non_members),
    )


def _rates_at(
    threshold: float, members: Float[ndarray, " members"], non_members: Float[ndarray, " others"]
) -> tuple[float, float]:
    """Return TPR and TNR."""
    return float(np.mean(members >= threshold)), float(np.mean(non_members < threshold))


def folds(count: int, parts: int, generator: np.random.Generator) -> Int[ndarray, " count"]:
    """Assign records to `parts` folds at random, as evenly as possible."""
    return generator.permutation(count) % parts


def cross_fitted(
    members: Float[ndarray, " members"],
    non_members: Float[ndarray, " others"],
    generator: np.random.Generator,
    parts: int = 5,
) -> RiskEstimate:
    """Return the risk by thresholds that never saw the records they judge.

    The best threshold on the judged records themselves would score 0.56 on 50 records
    of pure noise.
    """
    inside = folds(len(members), parts, generator)
    outside = folds(len(non_members), parts, generator)
    hits = rejections = 0.0
    for part in range(parts):
        threshold = best_threshold(members[inside != part], non_members[outside != part])
        hits += np.sum(members[inside == part] >= threshold)
        rejections += np.sum(non_members[outside == part] < threshold)
    tpr, tnr = _rates_at(best_threshold(members, non_members), members, non_members)
    return RiskEstimate.of_rates(
        float(hits / len(members)),
        float(rejections / len(non_members)),
        len(members),
        len(non_members),
        fitted=(tpr + tnr) / 2,
        auc=auc(members, non_members),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Signals:
    """What the model under attack, and reference models, say of the same records.

    All attacks look at the same arrays, and none can write into them.

    Attributes:
        labels: each record's class.
        target: log-probabilities of the classes, in nats, under the attacked model.
        references: the same under every reference model.
        inside: whether a reference was trained on a record; in the audit of a run each
            record is inside at least one and outside at least one.
        gradients: yields, record by record, the gradient of its loss under the attacked
            model, as a step of training on it alone takes it; None: the model is known by
            its answers only.
    """

    labels: Int[ndarray, " records"]
    target: Float[ndarray, "records classes"]
    references: Float[ndarray, "records models classes"]
    inside: Bool[ndarray, "records models"]
    gradients: Callable[[], Iterator[Params]] | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            if isinstance(array := getattr(self, field.name), ndarray):
                seen = array.view()
                seen.flags.writeable = False
                object.__setattr__(self, field.name, seen)


def of_label(
    log_probs: Float[ndarray, "records *models classes"], labels: Int[ndarray, " records"]
) -> Float[ndarray, "records *models"]:
    """Return log p_y: minus the loss."""
    places = labels.reshape(-1, *[1] * (log_probs.ndim - 1))
    return np.take_along_axis(log_probs, places, axis=-1)[..., 0]


def log_complement(
    log_probs: Float[ndarray, "records *models classes"],
) -> Float[ndarray, "records *models classes"]:
    """Return log(1 - p_c) as the sum of the other classes' probabilities.

    1 - exp(log p_c) would be 0 for every confident model.
    """
    from scipy.special import logsumexp

    classes = range(log_probs.shape[-1])
    return np.stack([logsumexp(np.delete(log_probs, c, -1), axis=-1) for c in classes], axis=-1)


def logit(
    log_probs: Float[ndarray, "records *models classes"], labels: Int[ndarray, " records"]
) -> Float[ndarray, "records *models"]:
    """Return the logit-scaled confidence phi = log(p_y / (1 - p_y)).

    Close to normally distributed over models that differ in their data, which p_y and
    the loss are not (Carlini et al., 2022, section IV-C).
    """
    return of_label(log_probs, labels) - of_label(log_complement(log_probs), labels)


def check_references(
    inside: Bool[ndarray, "records models"],
    least: int = 1,
    sides: Sequence[str] = ("inside", "outside"),
) -> None:
    """Refuse records that too few references hold, or too few do not.

    Args:
        inside: which reference was trained on which record.
        least: references on each side.
        sides: where they are needed.

    Raises:
        ConfigError: some record is inside, or outside, fewer than `least` of them.
    """
    counts = {"inside": inside.sum(axis=1), "outside": (~inside).sum(axis=1)}
    for side in sides:
        fewest = int(counts[side].min(initial=least))
        if fewest < least:
            raise ConfigError(
                f"Each record must be {side} at least {least} references, found {fewest}: use more."
            )


Needs = Literal["none", "gradients", "outside", "both"]
"""What an attack learns of beside the model's answers: nothing, gradients, references without a
record, or with and without."""

Knowledge = Literal["outputs", "weights", "all-others"]
"""What an attacker has, the least first: answers of the model and of its like; the model
itself; the model, and all members but one."""

Scores = Float[ndarray, " records"]

Scorer = Callable[[Signals], Scores]
"""Returns a score per record; higher is more member-like. An attack is one."""


class Attack(Component):
    """Scores records by what models say of them; higher is more member-like.

    Your own is a subclass with options, or a plain function of `Signals`: name it in
    `covey audit RUN --attack package.module:name`, or pass it to `Run.audit`.

    Attributes:
        needs: that without which it has nothing to say.
        fewest: how many of these references each record needs.
    """

    needs: ClassVar[Needs] = "both"
    fewest: ClassVar[int] = 1

    def __call__(self, signals: Signals) -> Scores:
        """Return one finite score per record."""
        raise NotImplementedError


class OwnAttack(Attack, OwnFunction):
    """A user's function of `Signals`."""

    def __call__(self, signals: Signals) -> Scores:
        """Return what the function says."""
        return self.call(signals)


@component("attack", "loss")
class LossAttack(Attack):
    """Minus the loss under the attacked model."""

    needs: ClassVar[Needs] = "none"

    def __call__(self, signals: Signals) -> Scores:
        """Return log p_y."""
        return of_label(signals.target, signals.labels)


@component("attack", "entropy")
class EntropyAttack(Attack):
    """Whatever the model answers surely and rightly is a member.

    Being sure of a wrong class is as far from a member as can be; the plain entropy
    takes it for one.
    """

    needs: ClassVar[Needs] = "none"

    def __call__(self, signals: Signals) -> Scores:
        """Return minus the modified entropy, at most 0 (Song, Mittal, 2021, Eq. 8).

        (1 - p_y) log p_y + sum_{c != y} p_c log(1 - p_c)
        """
        others = log_complement(signals.target)
        wrong = np.exp(signals.target) * others
        right = np.exp(of_label(others, signals.labels)) * of_label(signals.target, signals.labels)
        return right + wrong.sum(axis=1) - of_label(wrong, signals.labels)


@component("attack", "plain-entropy")
class PlainEntropyAttack(Attack):
    """Whatever the model answers surely is a member."""

    needs: ClassVar[Needs] = "none"

    def __call__(self, signals: Signals) -> Scores:
        """Return minus the entropy, sum_c p_c log p_c, in [-log C, 0]: blind to the label."""
        return (np.exp(signals.target) * signals.target).sum(axis=1)


Variance = Literal["global", "per-example", "bayesian-n", "bayesian-t"]
"""One variance for all records, for few references (below 64), or each record's own; or what
is known of it by both, as a number ("n") or with what is not known of it ("t")."""


@component("attack", "lira")
class Lira(Attack):
    """The likelihood ratio of models with and without a record.

    Attributes:
        variance: one for all records, each record's own, or what both say.
    """

    variance: Variance = "global"

    def __call__(self, signals: Signals) -> Scores:
        """Return the log-ratio, of logit-scaled confidences."""
        return lira_online(*_logits(signals), signals.inside, self.variance)


@component("attack", "lira-offline")
class LiraOffline(Attack):
    """The same, against models without the record alone.

    Attributes:
        variance: one for all records, or each record's own.
    """

    needs: ClassVar[Needs] = "outside"
    variance: Variance = "global"

    def __call__(self, signals: Signals) -> Scores:
        """Return how unlikely the confidence would be."""
        return lira_offline(*_logits(signals), signals.inside, self.variance)


def _logits(seen: Signals) -> tuple[ndarray, ndarray]:
    return logit(seen.target, seen.labels), logit(seen.references, seen.labels)


@component("attack", "bavaria")
class Bavaria(Lira):
    """LiRA whose variances are each record's own as far as few references can know them.

    Attributes:
        variance: as a number ("bayesian-n") or with what is not known of it.
    """

    fewest: ClassVar[int] = 2
    variance: Variance = "bayesian-t"


@component("attack", "bavaria-offline")
class BavariaOffline(LiraOffline):
    """The same, against models without the record alone.

    Attributes:
        variance: as a number ("bayesian-n") or with what is not known of it.
    """

    fewest: ClassVar[int] = 2
    variance: Variance = "bayesian-t"


def lira_online(
    target: Float[ndarray, " records"],
    references: Float[ndarray, "records models"],
    inside: Bool[ndarray, "records models"],
    variance: Variance = "global",
) -> Float[ndarray, " records"]:
    """Return log p_in(phi) - log p_out(phi), both normal, or Student's where Bayesian.

    Args:
        target: phi, the logit-scaled confidence under the attacked model.
        references: the same under models with (`inside`) and without the record.
        inside: which reference was trained on which record.
        variance: whether the sigmas are shared by all records.
    """
    check_references(inside, MIN_REFERENCES[variance])
    in_, out = (_law(references, side, variance) for side in (inside, ~inside))
    return in_.logpdf(target) - out.logpdf(target)


def lira_offline(
    target: Float[ndarray, " records"],
    references: Float[ndarray, "records models"],
    inside: Bool[ndarray, "records models"],
    variance: Variance = "global",
) -> Float[ndarray, " records"]:
    """Return -log P[phi' > phi], phi' of p_out: one-sided, against OUT models alone.

    Arguments as for `lira_online`; IN columns are not looked at. The logarithm keeps
    records apart whose probability rounds to 0.
    """
    check_references(inside, MIN_REFERENCES[variance], ("outside",))
    return -_law(references, ~inside, variance).logsf(target)


def _law(
    values: Float[ndarray, "records models"],
    chosen: Bool[ndarray, "records models"],
    variance: Variance,
) -> Any:  # noqa: ANN401 - a frozen distribution of scipy
    """Return how each record's chosen columns are distributed."""
    from scipy.stats import norm

    mu = values.mean(axis=1, where=chosen)
    if variance == "global":
        sigma = np.full(len(mu), values[chosen].std())
    elif variance == "per-example":
        sigma = values.std(axis=1, where=chosen)
    else:
        return _posterior(values, chosen, student=variance == "bayesian-t")
    return norm(mu, np.maximum(sigma, SMALLEST))


def _posterior(
    values: Float[ndarray, "records models"],
    chosen: Bool[ndarray, "records models"],
    *,
    student: bool,
) -> Any:  # noqa: ANN401 - a frozen distribution of scipy
    """Return the predictive distribution under a conjugate prior that all records share.

        mu, sigma^2 ~ normal inverse gamma (m, kappa, nu, s^2),    n values with mean x
        kappa' = kappa + n,    nu' = nu + n,    m' = (kappa m + n x) / kappa'
        nu' s'^2 = nu s^2 + sum (x_k - x)^2 + kappa n / kappa' (x - m)^2

    and Student's t with nu' degrees at m' with the scale s' sqrt(1 + 1 / kappa'), or the
    normal N(m', s'^2). The prior has the moments that the records have (empirical Bayes):
    of log-variances for nu and s^2 (Smyth, 2004), and of means for m and kappa. That choice
    of the prior is covey's own.
    """
    from scipy.optimize import root_scalar
    from scipy.special import digamma, polygamma
    from scipy.stats import norm, t

    n, x = chosen.sum(axis=1), values.mean(axis=1, where=chosen)
    squares = np.maximum(((values - x[:, None]) ** 2).sum(axis=1, where=chosen), SMALLEST**2)
    half = (n - 1) / 2
    logs = np.log(squares / (n - 1)) - digamma(half) + np.log(half)
    scatter = float(logs.var() - polygamma(1, half).mean())
    least, most = float(polygamma(1, 5e3)), float(polygamma(1, 0.05))
    excess = min(max(scatter, least), most)  # nu between 0.1 and 10,000
    nu = 2 * float(root_scalar(lambda a: polygamma(1, a) - excess, bracket=(0.01, 1e4)).root)
    s2 = float(np.exp(logs.mean() + digamma(nu / 2) - np.log(nu / 2)))
    m, own = x.mean(), (squares / (n - 1) / n).mean()
    kappa = s2 / max(float(x.var() - own), SMALLEST)
    after, nu_after = kappa + n, nu + n
    pulled = kappa * n / after * (x - m) ** 2
    scale = np.maximum(np.sqrt((nu * s2 + squares + pulled) / nu_after), SMALLEST)
    centre = (kappa * m + n * x) / after
    return t(nu_after, centre, scale * np.sqrt(1 + 1 / after)) if student else norm(centre, scale)


AtLeastOne = Annotated[float, Field(ge=1)]


@component("attack", "rmia")
class Rmia(Attack):
    """The share of the audited records that a record beats.

    The audited records stand in for the population: each is compared with all.

    Attributes:
        gamma: by how much a record must be ahead of another.
    """

    gamma: AtLeastOne = 1.0

    def __call__(self, signals: Signals) -> Scores:
        """Return the share, in [0, 1]."""
        ratios = likelihood_ratio_online(*_confidences(signals), signals.inside)
        return rmia(ratios, population=ratios, gamma=self.gamma)


@component("attack", "rmia-offline")
class RmiaOffline(Attack):
    """The same, where only models without the record are known.

    Attributes:
        gamma: by how much a record must be ahead of another.
        a: how little models with a record would differ from those without.
    """

    needs: ClassVar[Needs] = "outside"
    gamma: AtLeastOne = 1.0
    a: Share = 0.3

    def __call__(self, signals: Signals) -> Scores:
        """Return the share, in [0, 1]."""
        ratios = likelihood_ratio_offline(*_confidences(signals), signals.inside, self.a)
        return rmia(ratios, population=ratios, gamma=self.gamma)


def _confidences(seen: Signals) -> tuple[ndarray, ndarray]:
    return of_label(seen.target, seen.labels), of_label(seen.references, seen.labels)


def rmia(
    ratios: Float[ndarray, " records"], population: Float[ndarray, " others"], gamma: float = 1.0
) -> Float[ndarray, " records"]:
    """Return the share of the population that a record beats, in [0, 1].

    P_z[ ratio(x) / ratio(z) >= gamma ]

    Args:
        ratios: log ratio(x) of the audited records, from one of the functions below.
        population: log ratio(z) of records from the same distribution.
        gamma: by how much x must be ahead of z; at least 1.
    """
    behind = np.searchsorted(np.sort(population), ratios - np.log(gamma), side="right")
    return behind / len(population)


def likelihood_ratio_online(
    target: Float[ndarray, " records"],
    references: Float[ndarray, "records models"],
    inside: Bool[ndarray, "records models"],
) -> Float[ndarray, " records"]:
    """Return log ratio(x) = log p(x | theta) - log p(x), with IN and OUT models.

    p(x) = (mean of p(x | theta') over IN + mean over OUT) / 2

    Args:
        target: log p(x | theta), the log-probability of the label.
        references: log p(x | theta') under every reference.
        inside: which reference was trained on which record.
    """
    check_references(inside)
    sides = [_log_mean(references, chosen) for chosen in (inside, ~inside)]
    return target - (np.logaddexp(*sides) - np.log(2))


def likelihood_ratio_offline(
    target: Float[ndarray, " records"],
    references: Float[ndarray, "records models"],
    inside: Bool[ndarray, "records models"],
    a: float = 0.3,
) -> Float[ndarray, " records"]:
    """Return log ratio(x) where only OUT models are known.

    p(x) = ((1 + a) p_out(x) + 1 - a) / 2, p_out the mean over OUT models

    Arguments as for `likelihood_ratio_online`; `a` in [0, 1] says how little IN models
    would differ from OUT models: they overfit more, the smaller it should be.
    """
    check_references(inside, sides=("outside",))
    p_out = np.exp(_log_mean(references, ~inside))
    return target - np.log(((1 + a) * p_out + 1 - a) / 2)


def _log_mean(
    values: Float[ndarray, "records models"], chosen: Bool[ndarray, "records models"]
) -> Float[ndarray, " records"]:
    from scipy.special import logsumexp

    return logsumexp(values, b=chosen, axis=1) - np.log(chosen.sum(axis=1))


def shokri_features(
    log_probs: Float[ndarray, "records classes"], labels: Int[ndarray, " records"]
) -> Float[ndarray, "records features"]:
    """Return what the classifier sees of a record.

    The logarithms of the three highest probabilities, minus the loss, the logit-scaled
    confidence, whether the prediction is right, and the class (one-hot).
    """
    classes = log_probs.shape[1]
    highest, right = -np.sort(-log_probs, axis=1)[:, :3], log_probs.argmax(axis=1) == labels
    known = of_label(log_probs, labels), logit(log_probs, labels)
    return np.column_stack([highest, *known, right, np.eye(classes)[labels]])


@component("attack", "shokri")
class Shokri(Attack):
    """A classifier that learns on references what a member looks like."""

    def __call__(self, signals: Signals) -> Scores:
        """Return the log-odds of membership: learnt on the references, computed for the target.

        log P[in] / P[out] = w . standardised features + b
        """
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        check_references(signals.inside)
        references = np.moveaxis(signals.references, 1, 0)
        seen = [shokri_features(reference, signals.labels) for reference in references]
        classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        classifier.fit(np.concatenate(seen), signals.inside.T.reshape(-1))
        features = shokri_features(signals.target, signals.labels)
        return np.asarray(classifier.decision_function(features))


@component("attack", "gradient-norm")
class GradientNorm(Attack):
    """Whatever a step of training would hardly move the model for is a member."""

    needs: ClassVar[Needs] = "gradients"

    def __call__(self, signals: Signals) -> Scores:
        """Return -|grad_theta loss|^2, which is ordered as the norm (Nasr et al., 2019)."""
        if signals.gradients is None:
            raise ConfigError(
                "The attack gradient-norm needs gradients, found answers alone: pass the module."
            )
        parts = ((g.square().sum() for g in gradient.values()) for gradient in signals.gradients())
        return -np.array([float(sum(part)) for part in parts])


def fedmia(
    signals: Float[ndarray, "rounds clients records"], suspects: Int[ndarray, " records"]
) -> Float[ndarray, " records"]:
    """Return how far the suspect's update stands out from the others', in [0, 1].

    mean_t Phi((s_t,k(x) - mu_t(x)) / sigma_t(x)), mu and sigma over all clients but k

    A model that was not trained on x is an OUT model, and comes for free.

    Args:
        signals: s, what client k's model of round t says of x; higher is more
            member-like: minus the loss, or the cosine of x's gradient and the update.
        suspects: k, the client that is suspected of holding x.

    Raises:
        ConfigError: there are fewer than two other clients.
    """
    from scipy.special import ndtr

    _, clients, records = signals.shape
    if clients <= MIN_OTHERS:
        raise ConfigError(
            f"FedMIA needs {MIN_OTHERS} others in a cluster, found {clients} clients: leave it out."
        )
    others = np.arange(clients)[:, None] != suspects
    mu = signals.mean(axis=1, where=others)
    sigma = np.maximum(signals.std(axis=1, where=others), SMALLEST)
    own = signals[:, suspects, np.arange(records)]
    return ndtr(np.float64((own - mu) / sigma)).mean(axis=0)
