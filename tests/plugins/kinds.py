"""Tiny runs with a component of a user's own, one for every kind, in both spellings."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import covey
from covey.models.features import LinearHead
from plugins.aggregation_mixing import Mixing
from plugins.aggregation_trimmed import TrimmedByNumber
from plugins.cautious import Cautious
from plugins.data_hospitals import Hospitals
from plugins.data_stripes import Stripes
from plugins.ditto import Ditto
from plugins.engine_single import Single
from plugins.features_tiles import Tiles
from plugins.fedavgm import FedAvgM
from plugins.feddyn import FedDyn
from plugins.loss_generalized import GeneralizedCrossEntropy
from plugins.model_wide import TwoLayers
from plugins.objective_distance import AbsoluteDistance
from plugins.optimizer_lion import Lion
from plugins.partition_shards import Shards
from plugins.risk_confidence import ConfidenceGap
from plugins.running_means import RunningMeans
from plugins.scaffold import Scaffold
from plugins.schedule_polynomial import Polynomial
from plugins.server_optimizer_fedavgm import Nesterov
from plugins.shift_contrast import NoisyContrast

BASE = """
rounds = 4
population = {clients = 6, examples_per_client = 20, audit_examples = 0}
model.name = "linear"
train.learning_rate = 0.5
risk = {every = 2, name = "none"}
engine.name = "reference"
checkpoints.every = 1
"""


@dataclass(frozen=True)
class Case:
    """A run with one component of a user's own.

    Attributes:
        kind: of `BUILT_INS`.
        key: the setting that names it.
        options: that are not the defaults.
        text: the settings that name it.
        passed: the same settings, with the object itself.
    """

    kind: str
    key: str
    options: Mapping[str, object]
    text: str
    passed: Mapping[str, object]

    @property
    def module(self) -> str:
        return self.text.partition('"plugins.')[2].partition(":")[0]

    def settings(self, text: str = "") -> dict[str, Any]:
        """Return the settings as a file has them."""
        return merged(tomllib.loads(BASE), tomllib.loads(text or self.text))

    def file(self, path: Path, text: str = "") -> Path:
        path.write_text(covey.Config.of(self.settings(text)).toml())
        return path

    def config(self) -> covey.Config:
        """Return the settings as a program has them, with the object."""
        return covey.Config(**merged(tomllib.loads(BASE), self.passed))


def merged(base: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: {**base.get(key, {}), **value} if isinstance(value, dict) else value
        for key, value in {**base, **other}.items()
    }


CASES = {
    "algorithm": Case(
        "algorithm",
        "method.name",
        {"beta": 0.5},
        '[method]\nname = "plugins.fedavgm:FedAvgM"\nbeta = 0.5',
        {"method": FedAvgM(beta=0.5)},
    ),
    "selection": Case(
        "selection",
        "method.selection",
        {"margin": 0.01, "weight": 0.5},
        '[method]\ninitialisation = "random"\n'
        'selection = {name = "plugins.cautious:Cautious", margin = 0.01, weight = 0.5}\n'
        '[risk]\nname = "federated"',
        {
            "method": {"selection": Cautious(margin=0.01, weight=0.5), "initialisation": "random"},
            "risk": {"name": "federated"},
        },
    ),
    "aggregation": Case(
        "aggregation",
        "aggregation.name",
        {"cut": 2},
        '[aggregation]\nname = "plugins.aggregation_trimmed:TrimmedByNumber"\n'
        'cut = 2\n[method]\nname = "fedavg"',
        {"aggregation": TrimmedByNumber(cut=2), "method": {"name": "fedavg"}},
    ),
    "aggregation that mixes": Case(
        "aggregation",
        "aggregation.name",
        {"share": 0.2},
        '[aggregation]\nname = "plugins.aggregation_mixing:Mixing"\nshare = 0.2\n'
        '[method]\ninitialisation = "random"',
        {"aggregation": Mixing(share=0.2), "method": {"initialisation": "random"}},
    ),
    "server optimizer": Case(
        "server_optimizer",
        "aggregation.server_optimizer",
        {"beta": 0.5},
        "[aggregation]\nserver_optimizer = "
        '{name = "plugins.server_optimizer_fedavgm:Nesterov", beta = 0.5}\n'
        '[method]\ninitialisation = "random"',
        {
            "aggregation": {"server_optimizer": Nesterov(beta=0.5)},
            "method": {"initialisation": "random"},
        },
    ),
    "risk estimator": Case(
        "risk_estimator",
        "risk.name",
        {"sharpness": 2.0, "fewest": 2, "every": 2},
        '[risk]\nname = "plugins.risk_confidence:ConfidenceGap"\n'
        "sharpness = 2.0\nfewest = 2\n"
        '[method]\nselection = "threshold"\ninitialisation = "random"',
        {
            "risk": {"name": ConfidenceGap(sharpness=2.0, fewest=2)},
            "method": {"selection": "threshold", "initialisation": "random"},
        },
    ),
    "data source": Case(
        "data",
        "data.name",
        {"hospitals": 6, "patients": 20},
        '[data]\nname = "plugins.data_hospitals:Hospitals"\n'
        'hospitals = 6\npatients = 20\n[method]\nname = "fedavg"',
        {"data": Hospitals(hospitals=6, patients=20), "method": {"name": "fedavg"}},
    ),
    "data set": Case(
        "data",
        "data.name",
        {"contrast": 60},
        '[data]\nname = "plugins.data_stripes:Stripes"\ncontrast = 60\n[method]\nname = "fedavg"',
        {"data": Stripes(contrast=60), "method": {"name": "fedavg"}},
    ),
    "shift": Case(
        "shift",
        "population.shift",
        {"noise": 5.0},
        '[population]\nshift = {name = "plugins.shift_contrast:NoisyContrast", noise = 5.0}\n'
        "minority = [0.4, 0.6]\nmajority = [0.9, 1.1]\n"
        '[method]\nname = "fedavg"',
        {
            "population": {
                "shift": NoisyContrast(noise=5.0),
                "minority": (0.4, 0.6),
                "majority": (0.9, 1.1),
            },
            "method": {"name": "fedavg"},
        },
    ),
    "partition": Case(
        "partition",
        "population.partition",
        {"shards_per_client": 3},
        "[population]\npartition = "
        '{name = "plugins.partition_shards:Shards", shards_per_client = 3}\n'
        '[method]\nname = "fedavg"',
        {"population": {"partition": Shards(shards_per_client=3)}, "method": {"name": "fedavg"}},
    ),
    "model": Case(
        "model",
        "model.name",
        {"width": 8, "dropout": 0.5},
        '[model]\nname = "plugins.model_wide:TwoLayers"\n'
        'width = 8\ndropout = 0.5\n[method]\nname = "fedavg"',
        {"model": TwoLayers(width=8, dropout=0.5), "method": {"name": "fedavg"}},
    ),
    "features": Case(
        "features",
        "model.features",
        {"tiles": 4},
        '[model]\nname = "linear-head"\n'
        'features = {name = "plugins.features_tiles:Tiles", tiles = 4}\n[method]\nname = "fedavg"',
        {
            "model": LinearHead.model_validate({"features": Tiles(tiles=4)}),
            "method": {"name": "fedavg"},
        },
    ),
    "engine": Case(
        "engine",
        "engine.name",
        {"most": 2},
        '[engine]\nname = "plugins.engine_single:Single"\nmost = 2\n'
        '[method]\ninitialisation = "random"',
        {"engine": Single(most=2), "method": {"initialisation": "random"}},
    ),
    "algorithm with an objective": Case(
        "algorithm",
        "method.name",
        {"alpha": 0.2},
        '[method]\nname = "plugins.feddyn:FedDyn"\nalpha = 0.2',
        {"method": FedDyn(alpha=0.2)},
    ),
    "algorithm with personal models": Case(
        "algorithm",
        "method.name",
        {"strength": 0.2},
        '[method]\nname = "plugins.ditto:Ditto"\nstrength = 0.2',
        {"method": Ditto(strength=0.2)},
    ),
    "algorithm that sends tensors along": Case(
        "algorithm",
        "method.name",
        {"scale": 0.5, "clients": 5},
        '[method]\nname = "plugins.scaffold:Scaffold"\nscale = 0.5\nclients = 5',
        {"method": Scaffold(scale=0.5, clients=5)},
    ),
    "algorithm that adds up what it keeps": Case(
        "algorithm",
        "method.name",
        {"share": 0.5},
        '[method]\nname = "plugins.running_means:RunningMeans"\nshare = 0.5',
        {"method": RunningMeans(share=0.5)},
    ),
    "optimizer": Case(
        "optimizer",
        "train.optimizer",
        {"b1": 0.8},
        '[train]\noptimizer = {name = "plugins.optimizer_lion:Lion", b1 = 0.8}\n'
        '[method]\nname = "fedavg"',
        {"train": {"optimizer": Lion(b1=0.8)}, "method": {"name": "fedavg"}},
    ),
    "schedule": Case(
        "schedule",
        "train.schedule",
        {"power": 2.0},
        '[train]\nschedule = {name = "plugins.schedule_polynomial:Polynomial", power = 2.0}\n'
        '[method]\nname = "fedavg"',
        {"train": {"schedule": Polynomial(power=2.0)}, "method": {"name": "fedavg"}},
    ),
    "loss": Case(
        "loss",
        "train.loss",
        {"q": 0.5},
        '[train]\nloss = {name = "plugins.loss_generalized:GeneralizedCrossEntropy", q = 0.5}\n'
        '[method]\nname = "fedavg"',
        {"train": {"loss": GeneralizedCrossEntropy(q=0.5)}, "method": {"name": "fedavg"}},
    ),
    "objective": Case(
        "objective",
        "train.objective",
        {"mu": 0.01},
        '[train]\nobjective = {name = "plugins.objective_distance:AbsoluteDistance", mu = 0.01}\n'
        '[method]\nname = "fedavg"',
        {"train": {"objective": AbsoluteDistance(mu=0.01)}, "method": {"name": "fedavg"}},
    ),
}
