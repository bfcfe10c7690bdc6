"""What a head tells of who is in it, from what it would say of each record without it."""

import torch
from jaxtyping import Float
from torch import Tensor

from covey.heads.leave_out import LeftOut

__all__ = ["error_precision", "joined", "likelihood_ratio_successes"]

ROUNDING = 1e-10
"""Of the largest variance: what errors in float32, whose rounding is 1e-7, do not show."""


def likelihood_ratio_successes(
    found: LeftOut, precision: Float[Tensor, "classes classes"] | None = None
) -> Float[Tensor, " rows"]:
    """Return how often the best attack on each record is right, in [0.5, 1).

    Who knows the features, the record and how data are drawn compares two hypotheses for
    the score p that it sees. From draw to draw of the others' records,

        without the record:    p ~ N(p_out, v S)
        with it:               p ~ N(p_out + h (t - p_out), v S)

    with leverage h, the errors' covariance S over classes, and v = phi^T M^-1 N M^-1 phi.
    No attack tells equally likely hypotheses apart better than their likelihood ratio:

        success = Phi(d / 2),    d^2 = h^2 e^T S^-1 e / v,    e = t - p_out

    The variance with the record is smaller by (1 - h)^2 at most, which is left out. All
    other records are drawn anew here: who knows a pool of which the members are a part,
    as the references of an audit do, sees less vary, and does somewhat better.

    Args:
        found: of the records.
        precision: S^-1 where more records tell it than these; None: these do.

    References:
        Carlini et al., Membership Inference Attacks From First Principles, 2022 (LiRA):
        the same test, its distributions fitted to models trained for it.
    """
    errors = (found.targets - found.without).double()
    inverse = error_precision(found) if precision is None else precision
    lengths = ((errors @ inverse) * errors).sum(dim=1).clamp(min=0)
    spread = found.variances.double().clamp(min=torch.finfo(torch.float64).tiny)
    distances = found.leverages.double() * (lengths / spread).sqrt()
    return torch.special.ndtr(distances / 2)


def error_precision(found: LeftOut) -> Float[Tensor, "classes classes"]:
    """Return S^-1: of the covariance of the errors on records left out.

    Targets and scores add up to 0 over classes, so errors lie in C - 1 directions, and S
    is inverted in these alone: the mean of e^T S^-1 e is C - 1. Along the last, and
    between classes that no record has, there is nothing but rounding.
    """
    errors = (found.targets - found.without).double()
    errors = errors - errors.mean(dim=1, keepdim=True)
    covariance = errors.T @ errors / max(1, len(errors))
    return torch.linalg.pinv(covariance, rtol=ROUNDING, hermitian=True)


def joined(found: list[LeftOut]) -> LeftOut:
    """Return the answers on all clients' records, one client after the other."""
    return LeftOut(
        *(
            torch.cat([getattr(each, name) for each in found])
            for name in LeftOut.__dataclass_fields__
        )
    )
