"""The table of built-in components: one line for each, by kind and name.

Nothing but this table and a component's own file knows its name. A new component is its
file and a line here.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class BuiltIn(NamedTuple):
    """Where a built-in component is, and what it is in a few words of Markdown."""

    path: str
    about: str


BUILT_INS: Mapping[str, Mapping[str, BuiltIn]] = MappingProxyType(
    {
        "aggregation": {
            "mean": BuiltIn("covey.aggregation.mean:Mean", "the weighted mean of updates"),
            "anonymity-sets": BuiltIn(
                "covey.aggregation.anonymity:AnonymitySets",
                "each update is hidden among at least k, and one speaks for them (option "
                "`max_relative_norm`, above 0: updates are first shortened to so many "
                "times their cluster's median norm)",
            ),
            "trimmed-mean": BuiltIn(
                "covey.aggregation.robust:TrimmedMean",
                "the mean of every coordinate without its extremes (option "
                "`trim`: the share at either end)",
            ),
            "median": BuiltIn("covey.aggregation.robust:Median", "the median of every coordinate"),
            "krum": BuiltIn(
                "covey.aggregation.robust:Krum",
                "the update closest to its neighbours (`outliers`: clients that may send "
                "anything; `chosen`: above 1 the mean of so many, Multi-Krum)",
            ),
            "geometric-median": BuiltIn(
                "covey.aggregation.robust:GeometricMedian",
                "the point that updates are least far from in sum (option `steps`)",
            ),
            "norm-bounded": BuiltIn(
                "covey.aggregation.robust:NormBounded",
                "the mean of updates shortened to norm `max_norm` (option "
                "`max_relative_norm`, above 0: to so many times their cluster's median "
                "norm instead)",
            ),
        },
        "algorithm": {
            "fedavg": BuiltIn("covey.algorithms.fedavg:FedAvg", "one model for everybody"),
            "ditto": BuiltIn(
                "covey.algorithms.fedavg:Ditto",
                "FedAvg, and on every client a model of its own that stays near the shared "
                "one, by `lam`",
            ),
            "fedprox": BuiltIn(
                "covey.algorithms.fedavg:FedProx",
                "FedAvg whose clients stay near the shared model, by `mu`",
            ),
            "ifca": BuiltIn(
                "covey.algorithms.ifca:Ifca",
                "every client trains the cluster model with the lowest loss",
            ),
            "ifca-mir": BuiltIn(
                "covey.algorithms.ifca:IfcaMir", "every client chooses its cluster by `selection`"
            ),
            "local": BuiltIn(
                "covey.algorithms.fedavg:LocalTraining", "every client has a model of its own"
            ),
            "solved": BuiltIn(
                "covey.algorithms.solved:Solved",
                "FedAvg, IFCA and IFCA-MIR with heads that are solved from clients' sums "
                "(`regularisation`, `exposure`, `keep_sums`; `docs/solved.md`), for "
                '`model.name = "linear-head"`',
            ),
        },
        "data": {
            "digits": BuiltIn("covey.data.sets:Digits", "in scikit-learn"),
            "mnist": BuiltIn("covey.data.sets:Mnist", "handwritten digits"),
            "fashion-mnist": BuiltIn("covey.data.sets:FashionMnist", "clothes"),
            "emnist": BuiltIn("covey.data.sets:Emnist", "digits and letters"),
            "cifar10": BuiltIn("covey.data.sets:Cifar10", "photographs"),
            "femnist": BuiltIn(
                "covey.data.sets:Femnist",
                "LEAF's json, in `femnist/train` and `femnist/test`; else the images of "
                "`emnist`, whose writers nobody knows",
            ),
            "celeba": BuiltIn(
                "covey.data.sets:CelebA",
                "`list_attr_celeba.txt`, `list_eval_partition.txt` and "
                "`img_align_celeba/*.jpg` in `celeba`: 40 labels of 0 or 1, the first "
                "50,000 training and 20,000 test images, their middle square made 32 x 32",
            ),
            "npz": BuiltIn("covey.data.sets:NpzFolder", "one file per client"),
            "linear-mixture": BuiltIn(
                "covey.data.sets:LinearMixture",
                "drawn: a linear regression per group, for `regression`",
            ),
            "python": BuiltIn("covey.data.sets:PassedClients", "a program passed the clients"),
        },
        "engine": {
            "auto": BuiltIn("covey.engine.kinds:Auto", "`vmap` on a GPU, else `parallel`"),
            "reference": BuiltIn("covey.engine.kinds:Reference", "one client after another"),
            "parallel": BuiltIn("covey.engine.kinds:Parallel", "on CPUs"),
            "vmap": BuiltIn(
                "covey.engine.kinds:Vmap",
                "on a GPU (option `chunk`: clients at once; 0: by its free memory)",
            ),
            "ray": BuiltIn(
                "covey.engine.kinds:Ray",
                "`parallel` on every node of a Ray cluster (`docs/ray.md`; option "
                "`address` of the cluster, else one on this machine)",
            ),
            "flower": BuiltIn(
                "covey.engine.kinds:FlowerNodes",
                "clients on machines of their own (`docs/flower.md`)",
            ),
        },
        "features": {
            "gabor": BuiltIn(
                "covey.models.features:Gabor",
                "for images: random Gabor filters (options `filters`, `size`, `pool`), "
                "both signs of each, averaged over `pool` x `pool` parts",
            ),
            "random-patches": BuiltIn(
                "covey.models.features:RandomPatches",
                "for images: random whitened patches of nobody's images (the same options)",
            ),
            "none": BuiltIn(
                "covey.models.features:AsTheyAre",
                "the numbers of every example as they are, such as embeddings",
            ),
        },
        "model": {
            "mnist-cnn": BuiltIn("covey.models.networks:MnistCnn", "two convolutions, each pooled"),
            "femnist-cnn": BuiltIn(
                "covey.models.networks:FemnistCnn", "two convolutions, 128 neurons"
            ),
            "vgg": BuiltIn("covey.models.networks:Vgg", "VGG-11 with BatchNorm"),
            "convnet": BuiltIn("covey.models.networks:ConvNet", "two convolutions without pooling"),
            "lenet5": BuiltIn("covey.models.networks:LeNet5", "LeNet-5"),
            "resnet-mini": BuiltIn("covey.models.networks:ResNetMini", "two residual blocks"),
            "mlp": BuiltIn("covey.models.networks:Mlp", "one hidden layer"),
            "linear": BuiltIn("covey.models.networks:Linear", "softmax regression"),
            "linear-map": BuiltIn("covey.models.networks:LinearMap", "one matrix without bias"),
            "linear-head": BuiltIn(
                "covey.models.build:LinearHead",
                "softmax regression over fixed features, which starts at zero (options "
                "`features`: the name of a feature map, `feature_options`, and `scale` of "
                "the logits: 10; 0.3 suits gradient descent over image features)",
            ),
            "python": BuiltIn(
                "covey.models.build:PassedModel", "a program passed the model (`docs/python.md`)"
            ),
        },
        "partition": {
            "iid": BuiltIn("covey.data.partition:Iid", "at random"),
            "dirichlet": BuiltIn(
                "covey.data.partition:Dirichlet",
                "each client has a class mix of its own (of several labels, the one "
                "nearest to half and half counts as the class), and what a class no "
                "longer has comes from the others",
            ),
            "by-writer": BuiltIn(
                "covey.data.partition:ByWriter",
                "each client has one writer's images, where the files name writers "
                "(`femnist` as LEAF's json)",
            ),
        },
        "tracker": {
            "tensorboard": BuiltIn(
                "covey.trackers:TensorBoard",
                "event files in the run's folder (option `folder`: elsewhere)",
            ),
            "mlflow": BuiltIn(
                "covey.trackers:MLflow",
                "a run of MLflow, in a database in the run's folder (options `uri` of "
                "another store, `experiment`)",
            ),
            "wandb": BuiltIn(
                "covey.trackers:WeightsAndBiases",
                "a run of Weights & Biases, offline in the run's folder (options "
                "`project`, `entity`, `mode`)",
            ),
        },
        "attack": {
            "loss": BuiltIn("covey.membership.attacks:LossAttack", "minus the loss"),
            "shokri": BuiltIn(
                "covey.membership.attacks:Shokri", "a classifier of references' answers"
            ),
            "lira": BuiltIn(
                "covey.membership.attacks:Lira",
                "the likelihood ratio of references with and without the record",
            ),
            "rmia": BuiltIn(
                "covey.membership.attacks:Rmia",
                "the share of records that it is likelier to be a member than",
            ),
            "entropy": BuiltIn(
                "covey.membership.attacks:EntropyAttack",
                "minus the entropy, as seen by who knows the label",
            ),
            "plain-entropy": BuiltIn(
                "covey.membership.attacks:PlainEntropyAttack", "minus the entropy"
            ),
            "lira-offline": BuiltIn(
                "covey.membership.attacks:LiraOffline",
                "`lira` with references that did not learn the record alone",
            ),
            "rmia-offline": BuiltIn(
                "covey.membership.attacks:RmiaOffline",
                "`rmia` with references that did not learn the record alone",
            ),
        },
        "risk_estimator": {
            "federated": BuiltIn(
                "covey.membership.estimators:FederatedEstimator", "counts from the clients"
            ),
            "shadow": BuiltIn(
                "covey.membership.shadow:ShadowEstimator", "federations of the server"
            ),
            "client": BuiltIn(
                "covey.membership.estimators:ClientEstimator", "each client by itself, nothing sent"
            ),
            "oracle": BuiltIn(
                "covey.membership.estimators:OracleEstimator", "the true risk, in simulations"
            ),
            "none": BuiltIn("covey.membership.estimators:NoEstimator", "nothing"),
        },
        "loss": {
            "cross-entropy": BuiltIn("covey.engine.recipe:CrossEntropy", "with `label_smoothing`"),
            "focal": BuiltIn(
                "covey.engine.recipe:Focal", "less of what is sure already, by `gamma`"
            ),
            "huber": BuiltIn(
                "covey.engine.recipe:Huber", "a square up to `delta`, then a line; for numbers"
            ),
            "task": BuiltIn("covey.engine.recipe:TaskLoss", "that of `model.task`"),
        },
        "objective": {
            "plain": BuiltIn("covey.engine.recipe:Objective", "nothing"),
            "proximal": BuiltIn(
                "covey.engine.recipe:Proximal",
                "FedProx: `mu` / 2 times the squared distance from the start",
            ),
        },
        "optimizer": {
            "adam": BuiltIn(
                "covey.engine.optimizers:Adam", "with `betas`, `epsilon`, `weight_decay`"
            ),
            "adamw": BuiltIn("covey.engine.optimizers:AdamW", "Adam with decoupled `weight_decay`"),
            "sgd": BuiltIn(
                "covey.engine.optimizers:Sgd",
                "gradient descent, with `momentum`, `nesterov`, `weight_decay`",
            ),
        },
        "schedule": {
            "constant": BuiltIn("covey.engine.recipe:Constant", "one rate"),
            "cosine": BuiltIn(
                "covey.engine.recipe:Cosine", "half a period of the cosine, down to `final`"
            ),
            "step": BuiltIn("covey.engine.recipe:Stepwise", "times `gamma` after `every` rounds"),
            "warm-up": BuiltIn(
                "covey.engine.recipe:WarmUp", "a line from `first` up, `over` so many rounds"
            ),
        },
        "selection": {
            "loss": BuiltIn("covey.algorithms.selection:ByLoss", "the lowest loss"),
            "weighted": BuiltIn(
                "covey.algorithms.selection:Weighted",
                "the paper's: the best `alpha * loss + beta * risk`",
            ),
            "threshold": BuiltIn(
                "covey.algorithms.selection:ByThreshold",
                "the lowest loss among clusters whose risk the client accepts",
            ),
            "priced": BuiltIn(
                "covey.algorithms.selection:Priced",
                "a subsidy per cluster keeps `target_share` in it",
            ),
            "rebalanced": BuiltIn(
                "covey.algorithms.selection:Rebalanced",
                "moves at random keep `target_share` in every cluster",
            ),
        },
        "server_optimizer": {
            "none": BuiltIn("covey.aggregation.server:NoServerOptimizer", "the aggregated models"),
            "momentum": BuiltIn(
                "covey.aggregation.server:Momentum", "FedAvgM (options `momentum`, `learning_rate`)"
            ),
            "adam": BuiltIn(
                "covey.aggregation.server:Adam",
                "FedAdam (`learning_rate`, `beta_1`, `beta_2`, `tau`)",
            ),
            "yogi": BuiltIn("covey.aggregation.server:Yogi", "FedYogi (the same)"),
        },
        "shift": {
            "rotation": BuiltIn("covey.data.shift:Rotation", "degrees"),
            "brightness": BuiltIn(
                "covey.data.shift:Brightness", "factor, clipped; negative inverts"
            ),
            "none": BuiltIn("covey.data.shift:NoShift", "not at all"),
        },
    }
)

DEFAULTS: Mapping[str, str] = MappingProxyType(
    {
        "aggregation": "mean",
        "algorithm": "ifca-mir",
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

USUAL_ATTACKS = ("loss", "shokri", "lira", "rmia")
"""The attacks of an audit that names none."""


def described(kind: str) -> str:
    """Return what can be chosen of a kind, in Markdown, for the documentation."""
    names = [f"`{name}`: {each.about}" for name, each in BUILT_INS[kind].items()]
    return "; ".join([*names, "or `package.module:name`"])
