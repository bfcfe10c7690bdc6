"""What cannot be had together is refused.

Each line is a set of settings without one of which it could be played.
"""

import json
import re
from typing import Any

import pytest

from covey import Config, ConfigError
from covey.settings.load import replace_setting

REFUSED = """
data.name = "linear-mixture"
data.name = "npz" & method.initialisation = "groups"
data.name = "npz" & risk.name = "shadow"
data.name = "python" & method.initialisation = "groups"
data.name = "python" & risk.name = "shadow"
data.noise = 0.1
engine.name = "flower" & engine.precision = "bfloat16"
engine.name = "flower" & method.initialisation = "groups"
engine.name = "flower" & method.name = "local"
engine.name = "flower" & method.name = "pooled-ifca"
engine.name = "flower" & model.task = "multilabel"
engine.name = "flower" & risk.name = "plugins.risk_confidence:ConfidenceGap"
engine.name = "flower" & risk.name = "oracle"
engine.name = "flower" & risk.name = "shadow"
engine.name = "flower" & leaving.request_probability = 0.2
engine.name = "reference" & engine.precision = "bfloat16"
engine.name = "vmap" & privacy.record_clip = 1.0
engine.precision = "bfloat16" & privacy.record_clip = 1.0
aggregation.epsilon = 4
aggregation.min_anonymity = 2
aggregation.name = "anonymity-sets" & aggregation.limit_sets = true
sets within a distance & aggregation.partition = "public-random"
aggregation.name = "anonymity-sets" & method.name = "local"
aggregation.noise = "sound"
aggregation.name = "anonymity-sets" & train.cohort_size = 5
method.name = "ridge" & train.cohort_size = 5
model.task = "regression" & metrics = ["top-k"]
numbers & stopping.target = 0.9
engine.name = "flower" & metrics = ["top-k"]
metrics = ["top-k", "top-k"]
metrics = ["mean-squared-error"]
privacy.client_noise = 1.0 & train.cohort_size = 5
privacy.secure_sums = true & train.cohort_size = 4
train.cohort_size = 5 & train.participation = 0.5
train.cohort_size = 5 & leaving.store_updates = 2
method.initialisation = "groups" & method.num_clusters = 3
method.name = "local" & leaving.request_probability = 0.2
method.name = "pooled-ifca" & model.task = "regression"
method.name = "pooled-ifca" & risk.name = "none"
method.same_batch = true
method.same_batch = true & one step & privacy.record_clip = 1.0
method.selection = "priced"
method.selection = "rebalanced"
method.selection = {"name": "priced", "target_share": 0.9}
model.task = "regression" & risk.name = "shadow"
model.task = "tokens" & population.partition = "dirichlet"
model.task = "tokens" & train.loss = "cross-entropy"
population.holdout = 0
population.images = "per-group" & population.shift = "none"
privacy.client_clip = 1.0
privacy.client_noise = 1.0
privacy.record_noise = 1.0
privacy.selection_noise = 1.0
leaving.store_updates = 2
engine.name = "flower" & record noise & privacy.noise_model = "local"
record noise & client noise
record noise & aggregation.name = "median"
record noise & aggregation.weights = "examples"
record noise & train.optimizer = "adam"
record noise & train.max_gradient_norm = 1.0
record noise & train.objective = "proximal"
record noise & method.name = "fedprox"
record noise & method.name = "ditto"
record noise & method.name = "local"
record noise & method.name = "ifca" & method.initialisation = "random"
record noise & choices under noise & method.name = "ifca" & train.participation = 0.5
record noise & model.personal = ["*.bias"]
record noise & leaving.store_updates = 1
record noise & privacy.noise_model = "distributed"
fedavg & privacy.exposure = 0.6
own noise & privacy.exposure = 0.6
shares & privacy.exposure = 0.6
engine.name = "flower" & fedavg & leaving.store_updates = 1
data.name = "linear-mixture" & numbers
population.holdout = 0 & risk.name = "client"
population.holdout = 0 & no risk & method.select_on = "holdout"
method.selection = {"name": "priced", "target_share": 0.2} & method.max_newcomers = 0.25
sound & aggregation.partition = "mdav"
sound & aggregation.distance = "cosine"
sound & aggregation.weights = "examples"
sound & aggregation.max_distance = 2.0
sound & aggregation.epsilon = 0.0
sound & aggregation.noise_shape = "laplace"
sound & aggregation.noise = "paper"
client noise & aggregation.name = "anonymity-sets"
client noise & aggregation.name = "plugins.aggregation_trimmed:TrimmedByNumber"
client noise & aggregation.weights = "examples"
client noise & method.name = "pooled-ifca"
client noise & train.participation = 0.5
population.epsilon_limits = [1.0, 8.0]
shares & method.name = "ifca-mir"
shares & privacy.secure_sums = false
shares & privacy.colluders = 1
own noise & privacy.secure_sums = true
own noise & method.name = "ifca" & method.initialisation = "warm"
own noise & leaving.store_updates = 1
own noise & aggregation.weights = "examples"
choices under noise & method.name = "fedavg"
choices under noise & method.name = "local"
choices under noise & method.selection = "threshold"
choices under noise & method.selection = "plugins.selection_exploring:Exploring"
choices under noise & method.initialisation = "warm"
"""
SHORT: dict[str, dict[str, Any]] = {
    "fedavg": {"method.name": "fedavg"},
    "numbers": {"model.task": "regression"},
    "no risk": {"risk.name": "none"},
    "one step": {"train.local_steps": 1},
    "sets within a distance": {
        "aggregation.name": "anonymity-sets",
        "aggregation.max_distance": 2.0,
        "aggregation.limit_sets": True,
    },
    "sound": {
        "aggregation.name": "anonymity-sets",
        "aggregation.noise": "sound",
        "aggregation.partition": "public-random",
        "aggregation.epsilon": 4.0,
    },
    "record noise": {
        "method.name": "fedavg",
        "privacy.record_clip": 1.0,
        "privacy.record_noise": 1.0,
    },
    "client noise": {"privacy.client_clip": 1.0, "privacy.client_noise": 1.0},
    "own noise": {
        "method.name": "fedavg",
        "privacy.client_clip": 1.0,
        "privacy.client_noise": 1.0,
        "privacy.noise_model": "local",
    },
    "shares": {
        "method.name": "fedavg",
        "privacy.client_clip": 1.0,
        "privacy.client_noise": 1.0,
        "privacy.noise_model": "distributed",
        "privacy.secure_sums": True,
    },
    "choices under noise": {"privacy.selection_noise": 1.0, "method.initialisation": "random"},
}


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_a_combination_is_refused_and_says_why(line: str):
    with pytest.raises(ConfigError) as refused:
        Config.of(settings_of(line))
    for key in re.findall(r"(?:^|& )(\S+) =", line):
        assert key.partition(".")[0] in str(refused.value)


def settings_of(line: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for word in line.split(" & "):
        key, _, value = word.partition(" = ")
        for name, one in (SHORT.get(word) or {key: json.loads(value)}).items():
            replace_setting(settings, name.split("."), one)
    return settings


ALLOWED = """
method.selection = {"name": "priced", "target_share": 0.2}
method.name = "fedavg" & leaving.store_updates = 2
engine.name = "flower" & method.selection = "threshold"
engine.name = "flower" & train.cohort_size = 5
metrics = ["top-k", {"name": "top-k", "k": 1}]
sound
client noise
client noise & method.name = "fedavg" & train.participation = 0.5
client noise & method.num_clusters = 1 & train.participation = 0.5
choices under noise & method.name = "ifca"
shares
own noise & aggregation.name = "geometric-median" & population.epsilon_limits = [1.0]
record noise & privacy.exposure = "accepted" & privacy.releases = 3
client noise & fedavg & privacy.exposure = 0.6
record noise & privacy.noise_model = "local" & train.optimizer = "adam"
record noise & choices under noise & method.name = "ifca"
engine.name = "flower" & record noise & privacy.expected_records = 100
"""


@pytest.mark.parametrize("line", ALLOWED.strip().splitlines())
def test_what_is_nearly_refused_can_be_played(line: str):
    Config.of(settings_of(line))


@pytest.mark.parametrize("settings", ["client", "record"])
def test_no_run_under_noise_ends_where_its_models_say(settings: str):
    noise = f"fedavg & {settings} noise"
    Config.of(settings_of(noise))
    with pytest.raises(ConfigError, match=r"^stopping\.figure = 'accuracy' lets the models decide"):
        Config.of(settings_of(f'{noise} & stopping.figure = "accuracy"'))
    with pytest.raises(ConfigError, match=r"^stopping\.target = 0\.9 lets the models decide"):
        Config.of(settings_of(f"{noise} & stopping.target = 0.9"))
