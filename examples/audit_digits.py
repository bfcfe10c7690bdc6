"""An audit of an image classifier: which handwritten digits did a network learn by heart?"""

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn

import covey


def train(examples: covey.Examples, seed: int) -> nn.Module:
    """Train a small convolutional network; references are trained the same way."""
    with covey.Streams(seed).at("network").lent_to_torch():
        convolution, head = nn.Conv2d(1, 16, 3, padding=1), nn.Linear(256, 10)
    model = nn.Sequential(convolution, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), head)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(80):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(examples.inputs), examples.labels).backward()
        optimizer.step()
    return model


def main(out: str) -> None:
    pixels, digits = load_digits(return_X_y=True)
    images = torch.tensor(pixels / 16, dtype=torch.float32).view(-1, 1, 8, 8)
    labels = torch.tensor(digits)
    wrong = torch.arange(0, 400, 10)
    labels[wrong] = (labels[wrong] + 1) % 10  # what only memory can know
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    members, others = order[:400], order[400:800]
    sides = ((images[members], labels[members]) for members in (members, others))

    model = train(covey.Examples(images[members], labels[members]), seed=0)
    audit = covey.audit_model(
        model, *sides, references=train, folder=f"{out}/references", observe=print
    )
    print(audit.verdict)
    exposed = members[audit.most_exposed(0.02)]
    print(f"mislabelled among the most exposed: {sum(int(i) in wrong for i in exposed)} of 8")
    print(f"page: {audit.write_html(f'{out}/audit.html')}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/audit-digits")
