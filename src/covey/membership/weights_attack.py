"""Attacks on the weights of a linear layer: equations that are linear in membership.

A ridge head theta that is solved from records of weight z_i, with residuals
r_i = t_i - theta^T phi_i and some regularisation mu > 0, satisfies

    sum_i z_i phi_i r_i^T = mu theta                            (d classes equations)

Who has the head, the feature map and candidates among which the members are asks which z
does. Nothing else needs to be known: neither mu, nor how far the head leans on other
clusters. Of the last layer of a network, whose r_i is onehot less the probabilities, it is
true where training has ended in a minimum, and not far from true before that.

References:
    Bertran et al., Reconstruction Attacks on Machine Unlearning: Simple Models are
    Vulnerable, 2024: records from linear models before and after.
    Suri et al., Do Parameters Reveal More than Loss for Membership Inference?, 2024.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor, nn

from covey.base.errors import ConfigError
from covey.base.names import Params
from covey.data.examples import Examples, to_floats
from covey.ridge.head import targets_of

PRIOR = 1e-6
"""Of the mean square of a record's equations: what the rounding of weights in float32
(1e-7) or float16 (1e-3, in all entries independently) does not drown."""

LAST_LAYER_PRIOR = 0.1
"""The same of a trained layer, whose equations hold roughly."""

POPULATION_PRIOR = 3e-3
"""The same of equations that other records stand for."""

DAMPING = 0.2
"""What is added to each eigenvalue of a last layer's Hessian, as Suri et al. have it: the
directions in which a layer is flat would else decide alone."""

MAX_WEIGHTS = 4_096
"""Of a last layer whose Hessian is inverted."""

LayerAttack = Literal["weights", "ridge-weights", "inverse-hessian"]
"""Attacks on a module's last layer by name."""

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


def membership_weights(candidates: Equations, prior: float = PRIOR) -> Float64[Tensor, " records"]:
    """Return z, up to one factor: the larger, the more a record is in the head.

        argmin_{z, mu}  |sum_i z_i phi_i r_i^T - mu theta|^2 + rho |z - 1|^2

    mu is what is best for each z.

    Args:
        candidates: all of them, among which the members are.
        prior: rho over the mean square of a record's equations.
    """
    along, products = candidates.along, candidates.products(candidates)
    products -= torch.outer(along, along) / max(candidates.length, 1e-300)
    rho = prior * float(products.diagonal().mean().clamp(min=1e-300))
    products.diagonal().add_(rho)
    wanted = torch.full_like(along, rho)
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


def inverse_hessian_scores(
    layer: Equations, labels: Int64[Tensor, " records"], member: Bool[Tensor, " records"]
) -> Float64[Tensor, " records"]:
    """Return how much likelier the layer is with a record, of who knows all other members.

        -(|H^-1 g|^2 / n + 2 <H^-1 g_0, H^-1 g>)

    g is the gradient of the record's loss, g_0 that of the mean loss of the n members
    without it, H the Hessian of the last layer, damped: where SGD stays around its minimum
    with equal variance in all directions, that is the log-ratio of the densities. It is
    the paper's score (IHA) but for its term of the loss alone, which another attack has.

        H = mean_i (diag(p_i) - p_i p_i^T) kron phi_i phi_i^T + DAMPING I

    Args:
        layer: of all members and all others, trained by cross-entropy.
        labels: their classes.
        member: which of them are members; a record's own flag changes nothing but g_0.

    References:
        Suri, Zhang, Evans, 2024: the Inverse Hessian Attack.
    """
    phi, n = layer.features, member.sum()
    p = nn.functional.one_hot(labels, layer.residuals.shape[1]).double() - layer.residuals
    weight = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    rows = [
        torch.cat([(phi * w[:, None]).T @ phi for w in column.unbind(1)], dim=1)
        for column in weight.unbind(1)
    ]
    hessian = torch.cat(rows) / len(phi)
    hessian.diagonal().add_(DAMPING)
    g = -(layer.residuals[:, :, None] * phi[:, None, :]).reshape(len(phi), -1)
    lower, own = _lower(hessian), member.double()[:, None]
    others = (g[member].sum(dim=0) - own * g) / (n - own)
    step, toward = (torch.cholesky_solve(matrix.T, lower).T for matrix in (g, others))
    return -(step.square().sum(dim=1) / n + 2 * (toward * step).sum(dim=1))


def layer_scores(
    attack: LayerAttack, module: nn.Module, examples: Examples, member: Bool[Tensor, " records"]
) -> Float64[Tensor, " records"]:
    """Score records by the last layer of a module, by the attack of this name.

    Args:
        attack: its name; "ridge-weights" is "weights" of a layer that was solved for squares.
        module: on this machine's processor.
        examples: all members and all others.
        member: which of them are members; none but "inverse-hessian" looks.

    Raises:
        ConfigError: it has no such layer, or one too large.
    """
    layer = last_layer_of(module, module.state_dict(), examples, ridge=attack == "ridge-weights")
    if layer is None:
        raise ConfigError("it needs a last layer that is linear (nn.Linear), and there is none")
    weights, by_hessian = layer.features.shape[1] * layer.residuals.shape[1], "inverse-hessian"
    size, most = (weights, MAX_WEIGHTS) if attack == by_hessian else (len(examples), MAX_POOL)
    if size > most:
        kind = "weights in that layer" if attack == by_hessian else "records"
        raise ConfigError(f"it solves for at most {most:,} {kind}, found {size:,}")
    if attack == by_hessian:
        return inverse_hessian_scores(layer, examples.labels, member)
    return membership_weights(layer, PRIOR if attack == "ridge-weights" else LAST_LAYER_PRIOR)


def last_layer_of(
    module: nn.Module, params: Params, examples: Examples, *, ridge: bool = False
) -> Equations | None:
    """Return the equations of a network's last linear layer; None: it has none that trains.

    Args:
        module: the network.
        params: its weights.
        examples: whose equations these are.
        ridge: whether the layer was solved for squares, as a ridge head is, and not trained
            by cross-entropy.
    """
    layers = [n for n, layer in module.named_modules() if isinstance(layer, nn.Linear)]
    name = layers[-1] if layers else ""
    prefix, inputs = f"{name}." if name else "", list[Tensor]()
    if not layers or f"{prefix}weight" not in params or examples.labels.dim() != 1:
        return None

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
    scores = torch.cat(outputs).double()
    features = torch.cat(inputs).double()
    weight, bias = params[f"{prefix}weight"].double(), params.get(f"{prefix}bias")
    theta = weight.T
    if bias is not None:
        theta = torch.cat([theta, bias.double()[None]])
        features = nn.functional.pad(features, (0, 1), value=1.0)
    if ridge:
        return Equations.of_ridge(theta, features, examples.labels)
    onehot = nn.functional.one_hot(examples.labels, scores.shape[1]).double()
    return Equations.of(theta, features, onehot - scores.softmax(dim=1))


def _lower(matrix: Float64[Tensor, "n n"]) -> Float64[Tensor, "n n"]:
    lower: Tensor = torch.linalg.cholesky(matrix)  # pyright: ignore[reportUnknownMemberType]
    return lower
