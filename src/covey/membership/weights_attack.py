"""Attacks on the weights of a linear layer: equations that are linear in membership.

A ridge head theta that is solved from records of weight z_i, with residuals
r_i = t_i - theta^T phi_i and some regularisation mu > 0, satisfies

    sum_i z_i phi_i r_i^T = mu theta                            (d classes equations)

Who has the head, the feature map and candidates among which the members are asks which z
does. Nothing else needs to be known: neither mu, nor the weights of clients, nor how far
the head leans on other clusters. Of the last layer of a network, whose r_i is onehot less
the probabilities, it is true where training has ended in a minimum, and not far from true
before that.

References:
    Bertran et al., Reconstruction Attacks on Machine Unlearning: Simple Models are
    Vulnerable, 2024: records from linear models before and after.
    Suri et al., Do Parameters Reveal More than Loss for Membership Inference?, 2024.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float64, Int64
from torch import Tensor, nn

from covey.base.names import Params
from covey.data.examples import Examples, to_floats
from covey.models.ridge_state import targets_of

PRIOR = 1e-6
"""Of the mean square of a record's equations: what the rounding of weights in float32
(1e-7) or float16 (1e-3, in all entries independently) does not drown."""

LAST_LAYER_PRIOR = 0.1
"""The same of a trained layer, whose equations hold roughly."""

POPULATION_PRIOR = 3e-3
"""The same of equations that other records stand for."""

MAX_POOL = 12_000
"""Candidates at most: the equations are solved as a matrix of as many rows and columns."""

CHUNK = 500


@dataclass(frozen=True, slots=True, eq=False)
class Equations:
    """What each candidate's equations are made of: phi_i r_i^T, and mu theta.

    Attributes:
        features: phi_i.
        residuals: r_i.
        along: <phi_i r_i^T, theta>.
        length: |theta|^2.
    """

    features: Float64[Tensor, "records d"]
    residuals: Float64[Tensor, "records classes"]
    along: Float64[Tensor, " records"]
    length: float

    @classmethod
    def of_ridge(
        cls,
        theta: Float64[Tensor, "d classes"],
        features: Float64[Tensor, "records d"],
        labels: Int64[Tensor, " records"],
    ) -> "Equations":
        """Return those of a ridge head, t = onehot - 1 / classes; 1 is the last feature."""
        scores = features @ theta
        return cls.of(theta, features, targets_of(labels, scores) - scores)

    @classmethod
    def of(
        cls,
        theta: Float64[Tensor, "d classes"],
        features: Float64[Tensor, "records d"],
        residuals: Float64[Tensor, "records classes"],
    ) -> "Equations":
        """Return those of any linear layer."""
        along = ((features @ theta) * residuals).sum(dim=1)
        return cls(features, residuals, along, float(theta.square().sum()))

    def products(self, others: "Equations") -> Float64[Tensor, "records others"]:
        """Return <phi_i r_i^T, phi_k r_k^T>: no matrix of d classes rows is made."""
        return (self.features @ others.features.T) * (self.residuals @ others.residuals.T)


@dataclass(frozen=True, slots=True)
class Hiding:
    """The noise in the equations of a head under objective perturbation.

    Attributes:
        pull: mu.
        variance: of the noise in each equation.
        weight: w, with which members are in the head, on average.
    """

    pull: float
    variance: float
    weight: float


def membership_weights(
    candidates: Equations, prior: float = PRIOR, hidden: Hiding | None = None
) -> Float64[Tensor, " records"]:
    """Return z, up to one factor: the larger, the more a record is in the head.

        argmin_{z, mu}  |sum_i z_i phi_i r_i^T - mu theta|^2 + rho |z - 1|^2

    mu is what is best for each z. Where there is noise, mu and rho follow from it.

    Args:
        candidates: all of them, among which the members are.
        prior: rho over the mean square of a record's equations.
        hidden: what is known of the noise; None: there is none.
    """
    along, products = candidates.along, candidates.products(candidates)
    if hidden is None:
        products -= torch.outer(along, along) / max(candidates.length, 1e-300)
        rho = prior * float(products.diagonal().mean().clamp(min=1e-300))
        wanted = torch.full_like(along, rho)
    else:
        rho = 4 * hidden.variance / hidden.weight**2  # z is w / 2, give or take w / 2
        wanted = hidden.pull * along + rho * hidden.weight / 2
    products.diagonal().add_(rho)
    return torch.cholesky_solve(wanted[:, None], _lower(products))[:, 0]


def population_scores(judged: Equations, others: Equations) -> Float64[Tensor, " records"]:
    """Return how surely each record is in a head of which no other member is known.

        z_i = e_i^T S^-1 theta / (e_i^T S^-1 e_i),    e_i = phi_i r_i^T

    over its standard error. S is the covariance of the equations of other records, which
    only have to be drawn alike; it stands for all that is not known.
    """
    products = others.products(others)
    products.diagonal().add_(POPULATION_PRIOR * products.diagonal().mean())
    cross = others.products(judged)
    known = torch.cholesky_solve(cross, _lower(products))
    toward = judged.along - known.T @ others.along
    squares = judged.features.square().sum(dim=1) * judged.residuals.square().sum(dim=1)
    spread = (squares - (known * cross).sum(dim=0)).clamp(min=1e-300)
    return toward / spread.sqrt()


def last_layer_of(module: nn.Module, params: Params, examples: Examples) -> Equations | None:
    """Return the equations of a network's last linear layer; None: it has none that trains."""
    layers = [n for n, each in module.named_modules() if isinstance(each, nn.Linear)]
    if not layers or f"{layers[-1]}.weight" not in params or examples.labels.dim() != 1:
        return None
    name, inputs = layers[-1], list[Tensor]()

    def keep(_: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        inputs.append(arguments[0].detach().flatten(1))

    hook = module.get_submodule(name).register_forward_pre_hook(keep)
    try:
        with torch.no_grad():
            outputs = [
                torch.func.functional_call(module, dict(params), (to_floats(part),))
                for part in examples.inputs.split(CHUNK)
            ]
    finally:
        hook.remove()
    logits = torch.cat(outputs).double()
    onehot = nn.functional.one_hot(examples.labels, logits.shape[1]).double()
    features = torch.cat(inputs).double()
    weight, bias = params[f"{name}.weight"].double(), params.get(f"{name}.bias")
    theta = weight.T
    if bias is not None:
        theta = torch.cat([theta, bias.double()[None]])
        features = nn.functional.pad(features, (0, 1), value=1.0)
    return Equations.of(theta, features, onehot - logits.softmax(dim=1))


def _lower(matrix: Float64[Tensor, "n n"]) -> Float64[Tensor, "n n"]:
    lower: Tensor = torch.linalg.cholesky(matrix)  # pyright: ignore[reportUnknownMemberType]
    return lower
