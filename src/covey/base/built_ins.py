"""The table of built-in components: one line for each, by kind and name.

Only this table and a component's own file have its name. A new component is its
file and a line here; what it is, the first sentence of its docstring says.
"""

from collections.abc import Mapping
from types import MappingProxyType

BUILT_INS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "aggregation": {
            "mean": "covey.aggregation.mean:Mean",
            "anonymity-sets": "covey.aggregation.anonymity:AnonymitySets",
            "trimmed-mean": "covey.aggregation.robust:TrimmedMean",
            "median": "covey.aggregation.robust:Median",
            "krum": "covey.aggregation.robust:Krum",
            "geometric-median": "covey.aggregation.robust:GeometricMedian",
            "norm-bounded": "covey.aggregation.robust:NormBounded",
        },
        "algorithm": {
            "fedavg": "covey.algorithms.fedavg:FedAvg",
            "ditto": "covey.algorithms.fedavg:Ditto",
            "fedprox": "covey.algorithms.fedavg:FedProx",
            "ifca": "covey.algorithms.ifca:Ifca",
            "ifca-mir": "covey.algorithms.ifca:IfcaMir",
            "local": "covey.algorithms.fedavg:LocalTraining",
            "solved": "covey.algorithms.solved:Solved",
        },
        "augment": {"none": "covey.data.augment:Augment"},
        "data": {
            "digits": "covey.data.sets:Digits",
            "mnist": "covey.data.sets:Mnist",
            "fashion-mnist": "covey.data.sets:FashionMnist",
            "emnist": "covey.data.sets:Emnist",
            "cifar10": "covey.data.sets:Cifar10",
            "femnist": "covey.data.sets:Femnist",
            "celeba": "covey.data.sets:CelebA",
            "npz": "covey.data.sets:NpzFolder",
            "python": "covey.data.sets:PassedClients",
        },
        "engine": {
            "auto": "covey.engine.kinds:Auto",
            "reference": "covey.engine.kinds:Reference",
            "parallel": "covey.engine.kinds:Parallel",
            "vmap": "covey.engine.kinds:Vmap",
        },
        "features": {
            "gabor": "covey.models.features:Gabor",
            "random-patches": "covey.models.features:RandomPatches",
            "none": "covey.models.features:AsTheyAre",
        },
        "model": {
            "mnist-cnn": "covey.models.networks:MnistCnn",
            "femnist-cnn": "covey.models.networks:FemnistCnn",
            "vgg": "covey.models.networks:Vgg",
            "convnet": "covey.models.networks:ConvNet",
            "lenet5": "covey.models.networks:LeNet5",
            "resnet-mini": "covey.models.networks:ResNetMini",
            "mlp": "covey.models.networks:Mlp",
            "linear": "covey.models.networks:Linear",
            "linear-map": "covey.models.networks:LinearMap",
            "linear-head": "covey.models.features:LinearHead",
            "python": "covey.models.build:PassedModel",
        },
        "partition": {
            "iid": "covey.data.partition:Iid",
            "dirichlet": "covey.data.partition:Dirichlet",
            "by-writer": "covey.data.partition:ByWriter",
        },
        "metric": {
            "auroc": "covey.engine.metrics:Auroc",
            "average-precision": "covey.engine.metrics:AveragePrecision",
            "confusion": "covey.engine.metrics:Confusion",
            "f1": "covey.engine.metrics:F1",
            "mean-squared-error": "covey.engine.metrics:MeanSquaredError",
            "top-k": "covey.engine.metrics:TopK",
        },
        "tracker": {},
        "attack": {
            "loss": "covey.membership.attacks:LossAttack",
            "shokri": "covey.membership.attacks:Shokri",
            "lira": "covey.membership.attacks:Lira",
            "rmia": "covey.membership.attacks:Rmia",
            "entropy": "covey.membership.attacks:EntropyAttack",
            "plain-entropy": "covey.membership.attacks:PlainEntropyAttack",
            "lira-offline": "covey.membership.attacks:LiraOffline",
            "rmia-offline": "covey.membership.attacks:RmiaOffline",
            "bavaria": "covey.membership.attacks:Bavaria",
            "bavaria-offline": "covey.membership.attacks:BavariaOffline",
            "gradient-norm": "covey.membership.attacks:GradientNorm",
        },
        "risk_estimator": {
            "federated": "covey.membership.estimators:FederatedEstimator",
            "shadow": "covey.membership.shadow:ShadowEstimator",
            "client": "covey.membership.estimators:ClientEstimator",
            "oracle": "covey.membership.estimators:OracleEstimator",
            "none": "covey.membership.estimators:NoEstimator",
        },
        "loss": {
            "cross-entropy": "covey.engine.recipe:CrossEntropy",
            "task": "covey.engine.recipe:TaskLoss",
        },
        "objective": {
            "plain": "covey.engine.recipe:Objective",
            "proximal": "covey.engine.recipe:Proximal",
        },
        "optimizer": {
            "adam": "covey.engine.optimizers:Adam",
            "adamw": "covey.engine.optimizers:AdamW",
            "sgd": "covey.engine.optimizers:Sgd",
        },
        "schedule": {
            "constant": "covey.engine.recipe:Constant",
            "cosine": "covey.engine.recipe:Cosine",
        },
        "selection": {
            "loss": "covey.algorithms.selection:ByLoss",
            "weighted": "covey.algorithms.selection:Weighted",
            "threshold": "covey.algorithms.selection:ByThreshold",
        },
        "server_optimizer": {
            "none": "covey.aggregation.server:NoServerOptimizer",
            "momentum": "covey.aggregation.server:Momentum",
            "adam": "covey.aggregation.server:Adam",
            "yogi": "covey.aggregation.server:Yogi",
        },
        "shift": {
            "rotation": "covey.data.examples:Rotation",
            "brightness": "covey.data.examples:Brightness",
            "none": "covey.data.examples:NoShift",
        },
    }
)
"""Where each built-in component is, as `package.module:name`, by kind and name."""

DEFAULTS: Mapping[str, str] = MappingProxyType(
    {
        "aggregation": "mean",
        "algorithm": "ifca-mir",
        "augment": "none",
        "data": "digits",
        "engine": "auto",
        "features": "gabor",
        "loss": "task",
        "model": "mnist-cnn",
        "objective": "plain",
        "optimizer": "sgd",
        "partition": "iid",
        "risk_estimator": "federated",
        "schedule": "constant",
        "selection": "weighted",
        "server_optimizer": "none",
        "shift": "rotation",
    }
)
"""What is taken of a kind where the settings name nothing."""

ROBUST = "geometric-median"
"""How deployments merge updates where the settings say nothing of it: measured in
`benchmarks/results/poisoning.md`, with what it costs a minority."""

NEWCOMERS = 0.25
"""How many newcomers per founder deployments let into a cluster: measured there too."""

BASELINE = "fedavg"
"""The algorithm that runs are compared with."""

REFERENCES = (BASELINE, "ifca")
"""The algorithms to which differences are shown, run by run."""

LOSS = "loss"
"""The loss threshold of every run's end, by the name that it has in an audit."""

BOUND = "bound"
"""The source of a risk that no attack at all exceeds."""

USUAL_ATTACKS = (LOSS, "shokri", "lira", "rmia")
"""The attacks of an audit that names none."""
