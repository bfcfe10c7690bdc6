"""What was refused before parts claimed what they need stays refused.

Each line is a set of settings without one of which it could be played.
"""

import json

import pytest

from covey import Config, ConfigError

REFUSED = """
data.name = "linear-mixture"
data.name = "npz" & method.initialisation = "groups"
data.name = "npz" & redteam.source = "shadow"
data.name = "python" & method.initialisation = "groups"
data.name = "python" & redteam.source = "shadow"
data.noise = 0.1
engine.name = "flower" & engine.precision = "bfloat16"
engine.name = "flower" & method.initialisation = "groups"
engine.name = "flower" & method.name = "local"
engine.name = "flower" & method.pooling = "risk"
engine.name = "flower" & method.pooling = 0.5
engine.name = "flower" & model.task = "multilabel"
engine.name = "flower" & model.task = "regression"
engine.name = "flower" & redteam.source = "my.own:estimate"
engine.name = "flower" & redteam.source = "oracle"
engine.name = "flower" & redteam.source = "shadow"
engine.name = "flower" & unlearning.request_probability = 0.2
engine.name = "reference" & engine.precision = "bfloat16"
engine.name = "vmap" & privacy.record_clip = 1.0
engine.precision = "bfloat16" & privacy.record_clip = 1.0
merge.epsilon = 4
merge.min_anonymity = 2
merge.name = "anonymity-sets" & method.name = "local"
merge.noise = "sound"
method.initialisation = "groups" & method.num_clusters = 1
method.initialisation = "groups" & method.num_clusters = 3
method.name = "local" & unlearning.request_probability = 0.2
method.pooling = "risk" & model.task = "regression"
method.pooling = "risk" & redteam.source = "none"
method.selection = "priced"
method.selection = "rebalanced"
method.target_share = 0.9
model.task = "regression" & redteam.source = "shadow"
population.holdout = 0
population.images = "per-group" & population.shift = "none"
privacy.client_clip = 1.0
privacy.client_noise = 1.0
privacy.record_noise = 1.0
privacy.selection_noise = 1.0
unlearning.store_updates = 2
"""


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_a_combination_stays_refused(line: str):
    settings: dict[str, dict[str, object]] = {}
    for each in line.split(" & "):
        key, _, value = each.partition(" = ")
        section, _, name = key.partition(".")
        settings.setdefault(section, {})[name] = json.loads(value)
    with pytest.raises(ConfigError):
        Config.of(settings)
