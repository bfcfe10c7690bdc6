"""Tiny runs with a component of a user's own, of most kinds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plugins.aggregation_mixing import Mixing
from plugins.aggregation_trimmed import TrimmedByNumber
from plugins.cautious import Cautious
from plugins.data_hospitals import Hospitals
from plugins.ditto import Ditto
from plugins.fedavgm import FedAvgM
from plugins.feddyn import FedDyn
from plugins.loss_generalized import GeneralizedCrossEntropy
from plugins.model_wide import TwoLayers
from plugins.optimizer_lion import Lion
from plugins.partition_shards import Shards
from plugins.risk_confidence import ConfidenceGap
from plugins.scaffold import Scaffold
from plugins.server_optimizer_fedavgm import Nesterov
from plugins.shift_contrast import NoisyContrast
from support.runs import small

Settings = Mapping[str, Any]

BASE = small(
    population={"clients": 5},
    train={"learning_rate": 0.5},
    method={"name": "ifca-mir"},
    risk={"every": 2},
)
FEDAVG: Settings = {"method": {"name": "fedavg"}}
IFCA: Settings = {"method": {"initialisation": "random"}}


@dataclass(frozen=True)
class Case:
    """A run with one component of a user's own.

    Attributes:
        key: the setting that names it.
        own: its class.
        options: that are not the defaults.
        passed: the settings, with the object itself.
        around: the settings around it.
    """

    key: str
    own: type
    options: Settings
    passed: Settings
    around: Settings = field(default_factory=lambda: FEDAVG)

    def settings(self, *more: Settings) -> Settings:
        return merged(BASE, self.around, self.passed, *more)


def merged(*parts: Settings) -> dict[str, Any]:
    combined: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            both = isinstance(value, dict) and isinstance(combined.get(key), dict)
            combined[key] = {**combined[key], **value} if both else value
    return combined


def case(key: str, own: type[Any], around: Settings = FEDAVG, **options: Any) -> Case:
    section, _, name = key.partition(".")
    part = own(**options)
    passed = {section: part if name == "name" else {name: part}}
    return Case(key, own, options, passed, around)


RISK = {"sharpness": 2.0, "fewest": 2}
CASES = {
    "algorithm": case("method.name", FedAvgM, {}, beta=0.5),
    "algorithm with an objective": case("method.name", FedDyn, {}, alpha=0.2),
    "algorithm with personal models": case("method.name", Ditto, {}, strength=0.2),
    "algorithm that sends tensors along": case("method.name", Scaffold, {}, scale=0.5, clients=5),
    "selection": case(
        "method.selection",
        Cautious,
        {**IFCA, "risk": {"name": "federated"}},
        margin=0.01,
        weight=0.5,
    ),
    "aggregation": case("aggregation.name", TrimmedByNumber, cut=2),
    "aggregation that mixes": case("aggregation.name", Mixing, IFCA, share=0.2),
    "server optimizer": case("aggregation.server_optimizer", Nesterov, IFCA, beta=0.5),
    "risk estimator": Case(
        "risk.name",
        ConfidenceGap,
        {**RISK, "every": 2},
        {"risk": {"name": ConfidenceGap(**RISK)}},
        {"method": {"selection": "threshold", "initialisation": "random"}},
    ),
    "data source": case("data.name", Hospitals, hospitals=6, patients=20),
    "shift": case(
        "population.shift",
        NoisyContrast,
        {**FEDAVG, "population": {"minority": (0.4, 0.6), "majority": (0.9, 1.1)}},
        noise=5.0,
    ),
    "partition": case("population.partition", Shards, shards_per_client=3),
    "model": case("model.name", TwoLayers, width=8, dropout=0.5),
    "optimizer": case("train.optimizer", Lion, b1=0.8),
    "loss": case("train.loss", GeneralizedCrossEntropy, q=0.5),
}
