"""Small runs that a client has left, one for each answer, and what is signed about them."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from covey import Config, run
from support.runs import small

LEAVER, OTHER = "client-00003", "client-00001"
SETTINGS = small(
    rounds=3,
    population={"clients": 8},
    model={"name": "mlp"},
    aggregation={"name": "anonymity-sets", "min_anonymity": 4, "deniability_threshold": 3},
)
NARROW = {"name": "anonymity-sets", "min_anonymity": 4, "deniability_threshold": 4}

SUMS: dict[str, Any] = {
    "aggregation": {"name": "mean"},
    "method": {"name": "ridge", "initialisation": "random"},
    "model": {"name": "linear-head", "features": {"filters": 4}},
}


@dataclass(frozen=True)
class Left:
    """A run that a client has left, and its proof."""

    folder: Path
    proof: Path
    salt: str

    @property
    def keys(self) -> Path:
        """Where the operator's key is."""
        return self.folder.parent / "keys" / "covey" / "signing-key.pem"

    @property
    def document(self) -> dict[str, Any]:
        return json.loads(self.proof.read_text())


def left_runs(base: Path) -> Callable[[str], Left]:
    """Return how a run is made that a client left with an answer; each is made once."""
    kinds: dict[str, dict[str, Any]] = {
        "deny": {},
        "retrain": {},
        "stop": {},
        "roll_back": {"aggregation": NARROW, "train": {"participation": 0.8}},
        "calibrate": {"aggregation": {"name": "mean"}, "leaving": {"store_updates": 1}},
        "subtract": SUMS,
        "stop,noisy": {
            "aggregation": {"name": "mean"},
            "privacy": {"client_clip": 1.0, "client_noise": 1.0},
        },
        "stop,local": {
            "aggregation": {"name": "mean"},
            "privacy": {"client_clip": 1.0, "client_noise": 1.0, "noise_model": "local"},
        },
        "deny,sound": {
            "aggregation": {
                **SETTINGS["aggregation"],
                "partition": "public-random",
                "noise": "sound",
                "radius": 1.0,
                "epsilon": 8.0,
            }
        },
        "stop,steps": {
            "aggregation": {"name": "mean"},
            "train": {"batch_size": 10},
            "privacy": {"record_clip": 1.0, "record_noise": 1.0, "noise_model": "local"},
        },
        "retrain,own": {"train": {"loss": {"name": "support.own_loss:Plain"}}},
        "deny,blind": {"aggregation": {**SETTINGS["aggregation"], "partition": "public-random"}},
        "roll_back,clusters": {
            "aggregation": {**NARROW, "min_anonymity": 2, "deniability_threshold": 2},
            "method": {"name": "ifca", "initialisation": "groups"},
            "train": {"participation": 0.8},
        },
    }
    made: dict[str, Left] = {}

    def answered(kind: str) -> Left:
        if kind not in made:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("XDG_CONFIG_HOME", str(base / kind / "keys"))
                config = Config.of({**SETTINGS, **kinds[kind]})
                held = run(config=config, out=base / kind / "run")
                shutil.copytree(held.folder, base / kind / "before")
                (one,) = held.forget(LEAVER, kind.partition(",")[0])
            made[kind] = Left(held.folder, one.answered.proof, one.answered.salt)
        return made[kind]

    return answered
