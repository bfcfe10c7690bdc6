"""The documented settings, and one clear sentence for everything else."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey import Config, ConfigError, load_config
from covey.settings.load import flat

DOCUMENTED = """
seed = 0
rounds = 30
tracking = []
metrics = []
[data]
name = "digits"
dir = ""
label = ""
normalise = "none"
[population]
clients = 40
examples_per_client = 30
shift = {name = "rotation"}
shift_per = "image"
minority_share = 0.15
minority = [0, 25]
majority = [25, 50]
groups = []
partition = {name = "iid"}
images = "disjoint"
holdout = 0.2
audit_examples = 400
thresholds = [0.5, 0.8]
risk_weight = "from-threshold"
preferences = ""
preferences_by_handle = []
organisations = ""
exclude = []
[model]
name = "mnist-cnn"
task = "multiclass"
personal = []
[train]
local_epochs = 1
local_steps = 0
batch_size = 25
drop_last = false
learning_rate = 0.05
optimizer = {name = "sgd", momentum = 0.0, nesterov = false, weight_decay = 0.0}
schedule = {name = "constant"}
loss = {name = "task"}
objective = {name = "plain"}
max_gradient_norm = 0.0
participation = 1.0
cohort_size = 0
keep_losses = false
[method]
name = "ifca-mir"
num_clusters = 2
initialisation = "warm"
selection = {name = "weighted"}
select_on = "train"
select_examples = 0
pooling = 0.0
max_newcomers = 0.0
[risk]
name = "federated"
every = 5
[aggregation]
name = "mean"
server_optimizer = {name = "none"}
weights = "equal"
[privacy]
client_clip = 0.0
client_noise = 0.0
record_clip = 0.0
record_noise = 0.0
selection_noise = 0.0
secure_sums = false
min_cohort = 5
delta = 1e-5
[secrets]
source = "seeded"
key_path = ""
[audit]
non_members = "matched"
[leaving]
request_probability = 0.0
store_updates = 0
[ledger]
url = ""
[engine]
name = "auto"
workers = 0
precision = "float32"
chunk = 0
[checkpoints]
every = 1
keep = "all"
best = "none"
[stopping]
figure = "none"
patience = 5
min_change = 0.0
"""

CHANGED = """
seed = 7
rounds = 3
[population]
shift = "brightness"
holdout = 0.25
thresholds = [0.55, 0.7]
risk_weight = 0.25
exclude = ["client-00001"]
[[population.groups]]
share = 0.2
shift = [0.2, 0.4]
examples_per_client = 50
[[population.groups]]
share = 0.8
shift = [0.9, 1.2]
examples_per_client = 250
[model]
name = "plugins.model_wide:two_layers"
width = 8
[method]
selection = {name = "plugins.cautious:Cautious", margin = 0.1}
initialisation = "groups"
[risk]
name = "none"
"""


def refusal(settings: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as refused:
        Config.of(settings)
    return str(refused.value)


def assert_clear_sentences(message: str, *parts: str) -> None:
    for part in parts:
        assert part in message
    first, *others = message.splitlines()
    assert not others or first.endswith("mistakes in the settings:")
    assert all(each.endswith(".") for each in others or [first])
    for traceback_word in ("pydantic", "validation error", "ValidationError"):
        assert traceback_word not in message


def test_the_defaults_are_the_documented_ones():
    documented = tomllib.loads(DOCUMENTED)
    assert flat(Config().model_dump(mode="json")) == flat(documented)
    assert Config.of(documented) == Config() == load_config(None)


@pytest.mark.parametrize("text", ["", DOCUMENTED, CHANGED])
def test_toml_gives_the_same_config_again(text: str, tmp_path: Path):
    config = Config.of(tomllib.loads(text))
    assert Config.of(tomllib.loads(config.toml())) == config
    path = tmp_path / "config.toml"
    path.write_text(config.toml(), encoding="utf-8")
    assert load_config(path) == config


@given(
    st.fixed_dictionaries(
        {
            "seed": st.integers(0, 2**63 - 1),
            "rounds": st.integers(1, 1000),
            "train": st.fixed_dictionaries(
                {
                    "learning_rate": st.floats(1e-9, 1e9),
                    "participation": st.floats(1e-9, 1),
                    "optimizer": st.fixed_dictionaries(
                        {"momentum": st.floats(0, 1, exclude_max=True)}
                    ),
                }
            ),
            "data": st.fixed_dictionaries({"dir": st.text(max_size=9)}),
            "population": st.fixed_dictionaries(
                {
                    "exclude": st.lists(st.text(max_size=9), max_size=3),
                    "risk_weight": st.just("from-threshold") | st.floats(0, 1),
                }
            ),
        }
    )
)
def test_any_valid_settings_survive_toml(settings: dict[str, Any]):
    config = Config.of(settings)
    assert Config.of(tomllib.loads(config.toml())) == config


@pytest.mark.parametrize(
    ("pairs", "changed"),
    [
        (["train.local_epochs=5"], {"train": {"local_epochs": 5}}),
        (["seed=3", " rounds = 9 "], {"seed": 3, "rounds": 9}),
        (["method.name=ifca"], {"method": {"name": "ifca"}}),
        (['method.name="ifca"'], {"method": {"name": "ifca"}}),
        (["population.thresholds=[0.6, 0.6]"], {"population": {"thresholds": [0.6] * 2}}),
        (["population.risk_weight=0.5"], {"population": {"risk_weight": 0.5}}),
        (["data.dir=/a=b"], {"data": {"dir": "/a=b"}}),
        (["seed=1", "seed=2"], {"seed": 2}),
    ],
)
def test_settings_can_be_set_one_by_one(pairs: list[str], changed: dict[str, Any]):
    assert load_config(None, pairs) == Config.of(changed)


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"colour": 1}, ("Unknown setting 'colour'", "rounds", "Correct")),
        ({"train": {"learningrate": 1}}, ("'train.learningrate'", "learning_rate", "Correct")),
        ({"population": {"groups": [{"share": 1, "shfit": [0, 1]}]}}, ("population.groups.0",)),
        ({"rounds": 0}, ("rounds = 0", "greater than 0", "Change")),
        ({"seed": -1}, ("seed = -1", "Change")),
        ({"rounds": "many"}, ("rounds = 'many'", "integer", "Change")),
        ({"rounds": 1.5}, ("rounds = 1.5", "integer")),
        ({"train": 3}, ("train = 3", "Change")),
        ({"train": {"learning_rate": 0}}, ("train.learning_rate = 0", "greater than 0")),
        ({"train": {"learning_rate": float("nan")}}, ("train.learning_rate = nan", "Change")),
        ({"train": {"learning_rate": float("inf")}}, ("train.learning_rate = inf", "Change")),
        ({"train": {"participation": 1.1}}, ("train.participation = 1.1", "Change")),
        ({"train": {"optimizer": "adma"}}, ("train.optimizer = 'adma'", "'adam'")),
        ({"method": {"name": "scaffold"}}, ("method.name = 'scaffold'", "'ifca-mir'")),
        (
            {"population": {"risk_weight": 1.5}},
            ("population.risk_weight = 1.5", "'from-threshold'", "less than or equal to 1"),
        ),
        ({"model": {"name": "alexnet"}}, ("model.name = 'alexnet'", "'mnist-cnn'")),
        ({"data": {"name": "imagenet"}}, ("data.name = 'imagenet'", "'digits'")),
        ({"population": {"minority": [1]}}, ("population.minority", "Change")),
        (
            {"population": {"thresholds": [0.5, 8]}},
            ("population.thresholds.1 = 8", "less than or equal to 1"),
        ),
        (
            {"population": {"majority": [25, float("inf")]}},
            ("population.majority.1 = inf", "finite"),
        ),
        (
            {"population": {"partition": {"name": "dirichlet", "alpha": 0}}},
            ("population.partition.alpha = 0", "greater than 0"),
        ),
        ({"population": {"holdout": 1}}, ("population.holdout = 1", "less than 1")),
        (
            {"population": {"groups": [{"share": 0, "shift": [0, 1]}]}},
            ("population.groups.0.share = 0", "greater than 0"),
        ),
    ],
)
def test_what_is_unknown_or_impossible_is_refused_by_key_value_and_remedy(
    settings: dict[str, Any], parts: tuple[str, ...]
):
    assert_clear_sentences(refusal(settings), *parts)


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"population": {"minority": [25, 0]}}, ("population.minority", "[25.0, 0.0]", "Swap")),
        (
            {"population": {"thresholds": [0.8, 0.5]}},
            ("population.thresholds", "[0.8, 0.5]", "Swap"),
        ),
        (
            {
                "population": {
                    "groups": [
                        {"share": share, "shift": [0, 1], "examples_per_client": 9}
                        for share in (0.5, 0.6)
                    ]
                }
            },
            ("population.groups", "1.1", "Correct"),
        ),
        (
            {"population": {"images": "per-group", "shift": "none"}},
            ("population.images", "'none'", "Choose a shift"),
        ),
        (
            {"method": {"initialisation": "groups", "num_clusters": 3}},
            ("method.initialisation", "3", "Set method.num_clusters = 2"),
        ),
        (
            {
                "method": {"select_on": "holdout"},
                "population": {"holdout": 0},
                "risk": {"name": "none"},
            },
            ("method.select_on", "population.holdout = 0", "Reserve"),
        ),
        (
            {"population": {"holdout": 0}},
            ("risk.name = 'federated'", "population.holdout = 0", "Reserve"),
        ),
        (
            {"population": {"holdout": 0}, "risk": {"name": "client"}},
            ("risk.name = 'client'", "population.holdout = 0", "Reserve"),
        ),
        (
            {"model": {"task": "regression"}, "risk": {"name": "shadow"}},
            ("risk.name = 'shadow'", "task = 'regression'", "labels that are classes"),
        ),
        (
            {"model": {"task": "regression"}, "method": {"pooling": "risk"}},
            ("method.pooling = 'risk'", "task = 'regression'", "Set a share"),
        ),
        (
            {
                "model": {"task": "regression"},
                "method": {"initialisation": "random"},
                "privacy": {"selection_noise": 1.0},
            },
            ("privacy.selection_noise = 1.0", "a known bound"),
        ),
        (
            {"data": {"name": "linear-mixture"}},
            ("linear-mixture", "model.task", "'multiclass'", "Set model.task"),
        ),
        (
            {"data": {"name": "linear-mixture"}, "model": {"task": "regression"}},
            ("linear-mixture", "population.shift", "'rotation'", "images"),
        ),
        (
            {
                "data": {"name": "linear-mixture"},
                "model": {"task": "regression"},
                "population": {"shift": "none"},
                "audit": {"non_members": "pooled"},
            },
            ("linear-mixture", "audit.non_members", "'pooled'", "default"),
        ),
        (
            {"data": {"noise": 0.1}},
            ("data.noise = 0.1", "'linear-mixture'", "'digits'", "Remove it"),
        ),
        (
            {"privacy": {"record_noise": 1.0}},
            ("privacy.record_noise", "privacy.record_clip = 0", "Set it"),
        ),
        (
            {"privacy": {"record_clip": 1.0}, "engine": {"name": "vmap"}},
            ("privacy.record_clip", "'vmap'", "another engine"),
        ),
        (
            {"privacy": {"record_clip": 1.0}, "engine": {"precision": "bfloat16"}},
            ("privacy.record_clip", "'bfloat16'", "Leave"),
        ),
        (
            {"privacy": {"client_clip": 1.0, "client_noise": 1.0}, "method": {"pooling": 0.5}},
            ("pooling = 0.5", "privacy.client_noise = 1.0", "Set method.pooling = 0"),
        ),
    ],
)
def test_settings_that_disagree_are_refused(settings: dict[str, Any], parts: tuple[str, ...]):
    assert_clear_sentences(refusal(settings), *parts)


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        (
            {"method": {"name": "local"}},
            ("method.name = 'local'", "to know all clients", "rules it out"),
        ),
        (
            {"method": {"initialisation": "groups"}},
            ("method.initialisation = 'groups'", "every client's group", "'warm'"),
        ),
        *(
            (
                {"method": {"selection": {"name": selection, "target_share": share}}},
                (f"method.selection = '{selection}'", "every client measured"),
            )
            for selection, share in (("priced", 0.2), ("rebalanced", 0.2))
        ),
        (
            {"method": {"pooling": 0.5}},
            ("method.pooling = 0.5", "to know all clients", "Set method.pooling = 0"),
        ),
        ({"risk": {"name": "oracle"}}, ("risk.name = 'oracle'", "every client's data")),
        ({"model": {"task": "multilabel"}}, ("model.task = 'multilabel'", "one class per example")),
        ({"risk": {"name": "shadow"}}, ("risk.name = 'shadow'", "data on the server")),
        (
            {"privacy": {"record_clip": 1.0, "record_noise": 1.0}},
            ("privacy.record_noise = 1.0", "every client's data", "record_noise = 0"),
        ),
        (
            {"method": {"name": "fedavg"}, "leaving": {"store_updates": 1}},
            ("leaving.store_updates = 1", "calibrated", "store_updates = 0"),
        ),
        (
            {"leaving": {"request_probability": 0.5}},
            ("leaving.request_probability = 0.5", "simulated", "Set it to 0"),
        ),
    ],
)
def test_what_needs_everybodys_data_is_refused_where_clients_are_apart(
    settings: dict[str, Any], parts: tuple[str, ...]
):
    apart = {**settings, "engine": {"name": "flower"}}
    assert_clear_sentences(refusal(apart), "engine.name = 'flower'", *parts)
    Config.of(settings)


@pytest.mark.parametrize("content", [b"rounds = ", b"\xff\xfe", b"a = 1\na = 2"])
def test_a_broken_file_is_named(tmp_path: Path, content: bytes):
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"broken\.toml is not a readable TOML file"):
        load_config(path)


SOUND = {"name": "anonymity-sets", "noise": "sound", "partition": "public-random", "epsilon": 4.0}


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        (
            {"name": "mean"},
            ("aggregation.name = 'anonymity-sets'", "found 'mean'", "aggregation.noise"),
        ),
        ({"partition": "mdav"}, ("'sound'", "partition = 'public-random'")),
        ({"distance": "cosine"}, ("'sound'", "distance = 'l2'")),
        ({"weights": "examples"}, ("aggregation.weights = 'examples'", "count alike")),
        ({"max_distance": 2.0}, ("'sound'", "max_distance = 0")),
        ({"epsilon": 0.0}, ("'sound'", "an epsilon above 0")),
        ({"noise": "paper"}, ("epsilon", "noise = 'sound'")),
    ],
)
def test_sound_noise_with_what_voids_it_is_refused(changed: dict[str, Any], parts: tuple[str, ...]):
    assert Config.of({"aggregation": SOUND})
    message = refusal({"aggregation": {**SOUND, **changed}})
    assert_clear_sentences(message, *parts)


CLIENTS = {"privacy": {"client_clip": 1.0, "client_noise": 1.0}}


@pytest.mark.parametrize(
    ("sections", "parts"),
    [
        ({"privacy": {"client_noise": 1.0}}, ("found client_clip = 0", "Set it")),
        ({"privacy": {"client_clip": 1.0}}, ("client_clip", "found client_noise = 0")),
        (
            {**CLIENTS, "aggregation": {"name": "anonymity-sets"}},
            ("'anonymity-sets'", "privacy.client_noise", "Remove the noise"),
        ),
        (
            {**CLIENTS, "aggregation": {"name": "plugins.aggregation_trimmed:TrimmedByNumber"}},
            ("TrimmedByNumber", "privacy.client_noise"),
        ),
        (
            {**CLIENTS, "aggregation": {"weights": "examples"}},
            ("aggregation.weights = 'examples'",),
        ),
        (
            {**CLIENTS, "aggregation": {"noise": "paper"}},
            ("aggregation.noise = 'paper'", "'anonymity-sets'"),
        ),
        (
            {**CLIENTS, "train": {"participation": 0.5}},
            ("train.participation = 0.5", "several clusters", "'ifca-mir'"),
        ),
    ],
)
def test_sums_that_cannot_hide_a_client_are_refused(
    sections: dict[str, Any], parts: tuple[str, ...]
):
    assert_clear_sentences(refusal(sections), *parts)


@pytest.mark.parametrize(
    "sections",
    [
        CLIENTS,
        {**CLIENTS, "method": {"name": "fedavg"}, "train": {"participation": 0.5}},
        {**CLIENTS, "method": {"num_clusters": 1}, "train": {"participation": 0.5}},
    ],
)
def test_sums_that_can_are_not(sections: dict[str, Any]):
    assert Config.of(sections).privacy.client_noise == 1.0


@pytest.mark.parametrize(
    ("method", "parts"),
    [
        ({"name": "fedavg"}, ("method.name = 'fedavg'", "that choose")),
        ({"name": "local"}, ("method.name = 'local'", "that choose")),
        ({"selection": "threshold"}, ("'threshold'", "lowest cost")),
        ({"selection": {"name": "priced", "target_share": 0.2}}, ("'priced'", "lowest cost")),
        ({"selection": "covey:select_by_loss"}, ("select_by_loss", "lowest cost")),
        ({"initialisation": "warm"}, ("'warm'", "initialisation = 'random'")),
    ],
)
def test_choices_that_noise_does_not_cover_are_refused(
    method: dict[str, Any], parts: tuple[str, ...]
):
    noisy = {"privacy": {"selection_noise": 1.0}}
    fine = {"initialisation": "random"}
    for name in ("ifca", "ifca-mir"):
        assert Config.of({**noisy, "method": {**fine, "name": name}})
    message = refusal({**noisy, "method": {**fine, **method}})
    assert_clear_sentences(message, "privacy.selection_noise", *parts)
