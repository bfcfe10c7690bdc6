"""What one client, or one record, adds to the sums at most: whole numbers of bounded norm.

Features of a record, the last one (the bias) included, have at most the norm R = 4. What n
records add together is measured in one L2 norm, in which A and B have half a share each:

    |(A, B)|^2 = |A|_F^2 / (2 R^4) + |B|_F^2 / (2 R^2 |t|^2),    |t|^2 = 1 - 1 / classes

It is at most 1 for one record, and for the mean of many. |A|_F counts each entry off the
diagonal twice, as it stands in A, so noise that is drawn for the lower half alone needs
standard deviation s / sqrt(2) off the diagonal where it has s on it: (A_kl sqrt(2)) for
l < k and A_kk are coordinates in which |.|_F is the plain norm.
"""

import math

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from covey.heads.grid import FEATURE_STEPS, WEIGHT_STEPS
from covey.heads.sums import Rows

__all__ = [
    "CLIENT_STEPS",
    "MAX_NORM",
    "bounded_client",
    "bounded_records",
    "joint_norm",
    "target_norm",
]

MAX_NORM = 4
"""R: the largest norm of a record's features, the bias included, which is 1."""

CLIENT_STEPS = 2**12
"""Steps of weight that a client's records have together at a norm of 1: what it adds is
rounded down to them."""

MAX_RECORDS = 256
"""Of a client with more, as many as these enter: a step of weight is a part of each."""

SLACK = 1e-9
"""More than float64 rounds: what is bounded stays so."""


def target_norm(classes: int) -> float:
    """Return |t| of a target onehot(y) - 1 / classes."""
    return math.sqrt(1 - 1 / classes)


def bounded_records(rows: Rows) -> Rows:
    """Return the records with features of norm R at most; longer ones are shortened.

    The bias stays 1, as targets are centred by it. All numbers stay whole.
    """
    features = rows.features[:, :-1].double()
    squares = features.square().sum(dim=1)  # whole numbers: exact
    most = float((MAX_NORM**2 - 1) * FEATURE_STEPS**2)
    if not bool((squares > most).any()):
        return rows
    factor = (most / squares.clamp(min=1)).sqrt() * (1 - SLACK)
    shortened = torch.where(
        (squares > most)[:, None], (features * factor[:, None]).trunc(), features
    )
    bias = rows.features[:, -1:]
    return Rows(torch.cat([shortened.to(bias), bias], dim=1), rows.labels, rows.weight)


def bounded_client(rows: Rows, clip: float, classes: int) -> Rows:
    """Return a client's records at weights by which it adds at most `CLIENT_STEPS` R^2.

    Its sums are divided by its number of records, and by max(C, |(A, B)|): a client whose
    records are alike is shortened to C, and noise is counted in units of C.

    Args:
        rows: the client's, at a weight in steps of `WEIGHT_STEPS`.
        clip: C, the largest norm of what a client adds.
        classes: of the labels.
    """
    n = len(rows)
    if not n:
        return rows
    step = -(-n // MAX_RECORDS)
    some = bounded_records(
        Rows(rows.features[::step], rows.labels[::step], rows.weight)
    )
    norm = joint_norm(some, classes)
    share = rows.weight / WEIGHT_STEPS / max(clip, norm)
    weight = math.floor(CLIENT_STEPS * share / len(some) * (1 - SLACK))
    return Rows(some.features, some.labels, weight)


def joint_norm(rows: Rows, classes: int) -> float:
    """Return |(A, B)| of the mean over these records, from their products alone.

    |Phi^T Phi|_F = |Phi Phi^T|_F: no d x d matrix is made.
    """
    features = rows.features.double()
    products = features @ features.T / (MAX_NORM * FEATURE_STEPS) ** 2
    alike = _alike(rows.labels) - 1 / classes
    squares = products.square() + products * alike / target_norm(classes) ** 2
    return math.sqrt(max(0.0, float(squares.sum()) / 2)) / len(rows)


def _alike(labels: Int64[Tensor, " rows"]) -> Float64[Tensor, "rows rows"]:
    return (labels[:, None] == labels[None]).double()
