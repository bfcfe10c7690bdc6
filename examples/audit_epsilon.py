"""One training with noise, audited by canaries: as it should be, and with its noise forgotten."""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

import covey

STEPS, NOISE, CLIP, DELTA, CANARIES = 50, 8.0, 1.0, 1e-5, 1000


def trained(x: Tensor, y: Tensor, noise: float) -> nn.Module:
    """Clip each record's gradient, add noise to their sum, and step: DP-SGD in whole batches."""
    model, draw = nn.Linear(x.shape[1], 10), torch.Generator().manual_seed(0)
    params = {name: torch.zeros_like(param) for name, param in model.named_parameters()}

    def loss(params: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(model, params, (x[None],)), y[None])

    for _ in range(STEPS):
        gradients = vmap(grad(loss), in_dims=(None, 0, 0))(params, x, y)
        squares = [g.flatten(1).square().sum(dim=1) for g in gradients.values()]
        scale = (CLIP / torch.stack(squares).sum(dim=0).sqrt()).clamp(max=1)
        for name, g in gradients.items():
            total = torch.tensordot(scale, g, dims=1)
            noisy = total + noise * CLIP * torch.randn(total.shape, generator=draw)
            params[name] = params[name] - noisy / 500
    model.load_state_dict(params)
    return model


def main() -> None:
    pixels, digits = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(digits)
    # a canary has a column of its own, which no other record fills, and any label
    x, canaries = nn.functional.pad(x, (0, CANARIES)), torch.zeros(CANARIES, 64 + CANARIES)
    canaries[:, 64:] = 20 * torch.eye(CANARIES)
    labels = torch.arange(CANARIES) % 10
    coins = covey.draw_canaries(CANARIES, seed=0)
    inserted = torch.from_numpy(coins)

    for noise in (NOISE, 0.0):
        model = trained(torch.cat([x, canaries[inserted]]), torch.cat([y, labels[inserted]]), noise)
        with torch.no_grad():
            losses = nn.functional.cross_entropy(model(canaries), labels, reduction="none")
            accuracy = (model(x).argmax(dim=1) == y).float().mean()
        audit = covey.audit_one_run(-losses.numpy(), coins, DELTA, accounted_mu=STEPS**0.5 / NOISE)
        print(f"noise {noise}, accuracy {accuracy:.2f}. {audit.verdict}")
        print(f"if its noise is Gaussian: epsilon at least {audit.gaussian_epsilon:.2f}")


if __name__ == "__main__":
    main()
