"""The shadow attack: a classifier learns on references what a member looks like.

References:
    Shokri, Stronati, Song, Shmatikov, Membership Inference Attacks Against Machine
    Learning Models, 2017. Features as in the better attacks since; a linear classifier.
"""

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from covey.membership.attack_base import Attack, Scores
from covey.membership.signals import Signals, check_references, logit, of_label

__all__ = ["Shokri", "shokri", "shokri_features"]

TOP = 3


class Shokri(Attack):
    """A classifier that learns on references what a member looks like."""

    def __call__(self, signals: Signals) -> Scores:
        """Return the log-odds of membership."""
        return shokri(signals)


def shokri_features(
    log_probs: Float[ndarray, "records classes"], labels: Int[ndarray, " records"]
) -> Float[ndarray, "records features"]:
    """Return what the classifier sees of a record.

    The logarithms of the three highest probabilities, minus the loss, the logit-scaled
    confidence, whether the prediction is right, and the class (one-hot).
    """
    classes = log_probs.shape[1]
    return np.column_stack(
        [
            -np.sort(-log_probs, axis=1)[:, :TOP],
            of_label(log_probs, labels),
            logit(log_probs, labels),
            log_probs.argmax(axis=1) == labels,
            np.eye(classes)[labels],
        ]
    )


def shokri(signals: Signals) -> Float[ndarray, " records"]:
    """Return the log-odds of membership: learnt on the references, asked of the target.

    log P[in] / P[out] = w . standardised features + b
    """
    check_references(signals.inside)
    models = signals.inside.shape[1]
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    seen = [
        shokri_features(signals.references[:, m], signals.labels) for m in range(models)
    ]
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    classifier.fit(np.concatenate(seen), signals.inside.T.reshape(-1))
    features = shokri_features(signals.target, signals.labels)
    return np.asarray(classifier.decision_function(features))
