"""Guessing the groups before anybody has chosen: k-means on what clients sent."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from threadpoolctl import threadpool_limits

from covey.params import flatten
from covey.types import Params

__all__ = ["Split", "gap_split", "update_directions"]

NUM_REFERENCES = 30


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """One way to divide a cohort.

    Attributes:
        labels: cluster index of each client.
        gap: how many standard deviations more of the variance the clusters explain
            than k-means explains in a single Gaussian cloud of the same covariance;
            above about 2 the clients fall into groups, near 0 they do not.
    """

    labels: Int[ndarray, " clients"]
    gap: float


def gap_split(
    points: Float[ndarray, "clients features"],
    num_clusters: int,
    generator: np.random.Generator,
) -> Split:
    """Split by k-means, and say how far the data are from having no groups.

    gap = (E R_ref - R) / sd(R_ref),  R = sum of squares within clusters / in total

    References:
        After Tibshirani, Walther, Hastie, Estimating the number of clusters in a data
        set via the gap statistic, 2001; here the reference is Gaussian, and relative.
    """
    if not np.isfinite(points).all() or not np.ptp(points, axis=0).any():
        return Split(
            np.zeros(len(points), dtype=np.int64), 0.0
        )  # nothing to tell apart
    cloud = _principal(points)
    spread = cloud.std(axis=0)
    # One thread: the order of sums must not depend on the machine.
    with threadpool_limits(1):
        labels, within = _k_means(cloud, num_clusters, generator)
        references = np.array(
            [
                _k_means(
                    generator.normal(0, spread, cloud.shape), num_clusters, generator
                )[1]
                for _ in range(NUM_REFERENCES)
            ]
        )
    gap = (references.mean() - within) / max(float(references.std()), 1e-12)
    return Split(labels, float(gap))


def update_directions(updates: Sequence[Params]) -> Float[ndarray, "clients features"]:
    """Return the directions of the updates, relative to their mean, as rows.

    v_i = (u_i - mean u) / |u_i - mean u|

    What all clients have in common would hide what sets them apart. Rows are in a basis
    of the space that the updates span: only their inner products matter.
    """
    rows = torch.stack([flatten(update) for update in updates]).double()
    rows -= rows.mean(dim=0)
    rows /= rows.norm(dim=1, keepdim=True).clamp_min(1e-12)
    if not rows.isfinite().all():  # a client's training diverged
        return np.full((len(rows), 1), np.nan)
    return _from_products((rows @ rows.T).numpy())


def _from_products(gram: Float[ndarray, "n n"]) -> Float[ndarray, "n rank"]:
    """Return points with these inner products."""
    values, vectors = np.linalg.eigh(gram)
    kept = values > 1e-9 * values.max()
    return vectors[:, kept] * np.sqrt(values[kept])


def _principal(points: Float[ndarray, "n features"]) -> Float[ndarray, "n rank"]:
    """Return the same cloud, centred and along its principal axes."""
    centred = points - points.mean(axis=0)
    left, singular, _ = np.linalg.svd(centred, full_matrices=False)
    return left * singular


def _k_means(
    points: Float[ndarray, "n features"], k: int, generator: np.random.Generator
) -> tuple[Int[ndarray, " n"], float]:
    """Return the labels, and the share of the variance that is left within clusters."""
    from sklearn.cluster import KMeans

    seed = int(generator.integers(2**31))
    found = KMeans(k, n_init=10, random_state=seed)  # pyright: ignore[reportArgumentType]
    labels = found.fit_predict(points)
    total = ((points - points.mean(axis=0)) ** 2).sum()
    return labels.astype(np.int64), (found.inertia_ or 0.0) / max(float(total), 1e-300)
