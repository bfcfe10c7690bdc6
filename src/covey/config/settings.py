"""All settings of a run together, and what must hold between them."""

from collections.abc import Mapping, Sequence
from typing import Any

import tomli_w
from pydantic import BaseModel, ValidationError, model_validator

from covey.config.apart import apart_problems
from covey.config.later import refuse_later
from covey.config.sections import (
    AuditConfig,
    CheckpointsConfig,
    Count,
    DataConfig,
    EngineConfig,
    GroupConfig,
    LedgerConfig,
    MergeConfig,
    MethodConfig,
    ModelConfig,
    PopulationConfig,
    Positive,
    PrivacyConfig,
    RedteamConfig,
    SecretsConfig,
    Section,
    TrainConfig,
    UnlearningConfig,
)
from covey.errors import ConfigError

__all__ = ["Config"]


class Config(Section):
    """All settings of a run; the defaults are the embedded example on digits."""

    seed: Count = 0
    rounds: Positive = 30
    data: DataConfig = DataConfig()
    population: PopulationConfig = PopulationConfig()
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    method: MethodConfig = MethodConfig()
    redteam: RedteamConfig = RedteamConfig()
    merge: MergeConfig = MergeConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    secrets: SecretsConfig = SecretsConfig()
    audit: AuditConfig = AuditConfig()
    unlearning: UnlearningConfig = UnlearningConfig()
    engine: EngineConfig = EngineConfig()
    ledger: LedgerConfig = LedgerConfig()
    checkpoints: CheckpointsConfig = CheckpointsConfig()

    @model_validator(mode="after")
    def _agree(self) -> "Config":
        for problem in _disagreements(self):
            raise ConfigError(problem)
        return self

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "Config":
        """Return validated settings; ConfigError with key, value and remedy."""
        refuse_later(settings)
        try:
            return cls.model_validate(settings)
        except ValidationError as error:
            raise ConfigError(_sentence(error)) from None

    def toml(self) -> str:
        """Return all settings as TOML that gives this very config again."""
        return tomli_w.dumps(self.model_dump(mode="json"))


def _disagreements(config: Config) -> list[str]:
    """Return what is wrong between settings that are fine one by one."""
    population, method = config.population, config.method
    source = config.redteam.source
    num_groups = len(population.groups) or 2
    problems = [
        (
            f"population.{name} must be [low, high] with low <= high, found "
            f"{list(low_high)}. Swap the two numbers."
        )
        for name in ("minority", "majority", "thresholds")
        for low_high in [getattr(population, name)]
        if low_high[0] > low_high[1]
    ]
    shares = sum(group.share for group in population.groups)
    if population.groups and abs(shares - 1) > 1e-6:
        problems.append(
            f"The shares in population.groups must add up to 1, found {shares:g}. "
            f"Correct them."
        )
    if method.initialisation == "groups" and method.num_clusters != num_groups:
        problems.append(
            f"method.initialisation = 'groups' needs one cluster per group, found "
            f"num_clusters = {method.num_clusters} for {num_groups} groups. Set "
            f"method.num_clusters = {num_groups}."
        )
    if method.pooling == "risk" and source == "none":
        problems.append(
            "method.pooling = 'risk' follows the measured risk, found "
            "redteam.source = 'none'. Choose a source, or a fixed share of pooling."
        )
    if method.selection == "menu" and method.pooling != 0:
        problems.append(
            f"method.selection = 'menu' offers releases that are pooled already, found "
            f"method.pooling = {method.pooling!r}. Leave the pooling at 0, or choose "
            f"another selection."
        )
    problems += [*_share_problems(method), *_hiding_problems(config)]
    problems += _privacy_problems(config)
    problems += apart_problems(config)
    if method.select_on == "holdout" and population.holdout == 0:
        problems.append(
            "method.select_on = 'holdout' compares models on held-out examples, found "
            "population.holdout = 0. Reserve some, or select on 'train'."
        )
    if source in ("federated", "client") and population.holdout == 0:
        problems.append(
            f"redteam.source = {source!r} scores members against each client's own "
            "holdout, found population.holdout = 0. Reserve some (0.2), or set "
            "redteam.source = 'none'."
        )
    return problems


def _share_problems(method: MethodConfig) -> list[str]:
    """Return why the clusters cannot have the share that they are to keep."""
    share, most = method.target_share, 1 / method.num_clusters
    if share > most:
        return [
            f"method.target_share is what each of method.num_clusters = "
            f"{method.num_clusters} clusters keeps, so at most {most:.3g}, found "
            f"{share:g}. Lower it."
        ]
    if method.selection in ("priced", "rebalanced") and share == 0:
        return [
            f"method.selection = {method.selection!r} keeps method.target_share of the "
            f"clients in every cluster, found 0. Set it, for example to {most / 2:.3g}."
        ]
    return []


def _hiding_problems(config: Config) -> list[str]:
    """Return why clients cannot be hidden, or leave, as these settings ask."""
    merge, unlearning = config.merge, config.unlearning
    problems: list[str] = []
    if merge.deniability_threshold > merge.min_anonymity:
        problems.append(
            f"merge.deniability_threshold (x) is how many of an anonymity set's at least "
            f"merge.min_anonymity (k) members must stay, so at most k = "
            f"{merge.min_anonymity}, found x = {merge.deniability_threshold}. Lower x or "
            f"raise k."
        )
    hidden = merge.name == "anonymity-sets"
    if hidden and config.method.name == "local":
        problems.append(
            "merge.name = 'anonymity-sets' hides each client among others, found "
            "method.name = 'local', where every client is alone. Choose another method."
        )
    if unlearning.request_probability > 0 and config.method.name == "local":
        problems.append(
            "unlearning.request_probability is for models that clients share, found "
            "method.name = 'local'. Delete the client's own model instead."
        )
    if unlearning.store_updates > 0 and config.method.name != "fedavg":
        problems.append(
            f"unlearning.store_updates keeps every client's updates for FedEraser, which "
            f"calibrates one shared model, found method.name = {config.method.name!r}. "
            f"Set method.name = 'fedavg', or store_updates = 0."
        )
    return problems


def _privacy_problems(config: Config) -> list[str]:
    """Return why these settings cannot be private as they ask."""
    problems = [*_sound_problems(config.merge), *_client_problems(config)]
    problems += _pooling_problems(config)
    return [*problems, *_choice_problems(config), *_record_problems(config)]


def _pooling_problems(config: Config) -> list[str]:
    """Return why pooling tells what noise on clients should hide."""
    method = config.method
    noisy = config.privacy.client_noise > 0 or config.merge.noise == "sound"
    pooled = method.pooling != 0 or method.selection == "menu"
    if not (noisy and pooled and "ifca" in method.name):
        return []
    return [
        f"Pooled models are weighted by how many examples their clients hold, which noise "
        f"on clients does not hide, found method.pooling = {method.pooling!r} and "
        f"method.selection = {method.selection!r}. Set method.pooling = 0 and another "
        f"selection than 'menu', or use privacy.record_noise."
    ]


def _record_problems(config: Config) -> list[str]:
    """Return why gradients of single examples are not differentially private."""
    privacy, engine = config.privacy, config.engine
    problems: list[str] = []
    if privacy.record_noise > 0 and privacy.record_clip == 0:
        problems.append(
            "privacy.record_noise hides an example only if its gradient is clipped, "
            "found privacy.record_clip = 0. Set it, for example to 1.0."
        )
    if privacy.record_clip > 0 and engine.name == "vmap":
        problems.append(
            "privacy.record_clip needs the gradient of each example, which "
            "engine.name = 'vmap' does not have. Set engine.name = 'parallel'."
        )
    if privacy.record_clip > 0 and engine.precision != "float32":
        problems.append(
            f"privacy.record_clip is computed in float32, found engine.precision = "
            f"{engine.precision!r}. Leave the precision at its default."
        )
    return problems


def _sound_problems(merge: MergeConfig) -> list[str]:
    """Return why a set's representative is not differentially private."""
    if merge.noise != "sound" and merge.epsilon == 0:
        return []
    if merge.noise != "sound":
        return [
            f"merge.epsilon is what merge.noise = 'sound' keeps to, found "
            f"merge.noise = {merge.noise!r}. Set merge.noise = 'sound', or epsilon = 0."
        ]
    needed = (
        ("name", "anonymity-sets", "it hides one update per anonymity set"),
        ("partition", "public-random", "sets that follow the updates tell of them"),
        ("distance", "l2", "the cosine distance bounds no L2 sensitivity"),
        ("weights", "equal", "how many examples a client holds is its own secret"),
        ("max_distance", 0.0, "who is near whom tells of their updates"),
    )
    problems = [
        f"merge.noise = 'sound' needs merge.{key} = {value!r}, as {why}; found "
        f"{found!r}. Set merge.{key} = {value!r}, or choose another noise."
        for key, value, why in needed
        if (found := getattr(merge, key)) != value
    ]
    if merge.epsilon == 0:
        problems.append(
            "merge.noise = 'sound' adds as much noise as merge.epsilon asks for, found 0. "
            "Set merge.epsilon, for example to 4."
        )
    return problems


def _client_problems(config: Config) -> list[str]:
    """Return why the sums of clients' updates are not differentially private."""
    privacy, merge, method = config.privacy, config.merge, config.method
    if privacy.client_noise == 0:
        return [
            f"privacy.{key} is for updates that privacy.client_noise hides, found "
            f"client_noise = 0. Set the noise, or remove {key}."
            for key in ("client_clip", "adaptive_clip")
            if getattr(privacy, key)
        ]
    needed = (
        ("merge.name", merge.name, "mean", "it is noise on a sum"),
        (
            "merge.weights",
            merge.weights,
            "equal",
            "a weight would scale a clipped update",
        ),
        ("merge.noise", merge.noise, "none", "that one is for anonymity sets"),
    )
    problems = [
        f"privacy.client_noise needs {key} = {value!r}, as {why}; found {found!r}. Set "
        f"{key} = {value!r}, or remove the noise."
        for key, found, value, why in needed
        if found != value
    ]
    if privacy.client_clip == 0:
        problems.append(
            "privacy.client_noise is in units of privacy.client_clip, the largest norm of "
            "an update, found client_clip = 0. Set it, for example to 1."
        )
    alone = method.name == "fedavg" or (
        method.name != "local"
        and method.num_clusters == 1
        and method.selection != "menu"
    )
    if config.train.participation < 1 and not alone:
        problems.append(
            f"privacy.client_noise with train.participation < 1 hides who took part, "
            f"which the sizes of several clusters tell, found method.name = "
            f"{method.name!r}. Set train.participation = 1, or method.name = 'fedavg'."
        )
    if privacy.adaptive_clip and config.redteam.source == "shadow":
        problems.append(
            "privacy.adaptive_clip follows the clients from round to round, and shadows "
            "cannot, found redteam.source = 'shadow'. Choose another source, or set "
            "adaptive_clip = false."
        )
    return problems


def _choice_problems(config: Config) -> list[str]:
    """Return why the choice of a cluster is not differentially private."""
    method = config.method
    if config.privacy.selection_noise == 0:
        return []
    problems: list[str] = []
    if method.name not in ("ifca", "ifca-mir"):
        problems.append(
            f"privacy.selection_noise hides why a client chose its cluster, found "
            f"method.name = {method.name!r}, where nobody chooses. Set selection_noise = "
            f"0, or method.name = 'ifca-mir'."
        )
    if method.name == "ifca-mir" and method.selection not in ("loss", "weighted"):
        problems.append(
            f"privacy.selection_noise is for choices by the lowest cost, found "
            f"method.selection = {method.selection!r}. Set method.selection = 'loss' or "
            f"'weighted', or selection_noise = 0."
        )
    if method.smoothing > 0:
        problems.append(
            f"privacy.selection_noise is accounted for choice by choice, and smoothed "
            f"losses are those of many rounds, found method.smoothing = "
            f"{method.smoothing:g}. Set method.smoothing = 0."
        )
    if method.initialisation == "warm" and method.num_clusters > 1:
        problems.append(
            "privacy.selection_noise covers what clients choose, and a warm start splits "
            "them by what they send, found method.initialisation = 'warm'. Set "
            "method.initialisation = 'random'."
        )
    return problems


def _sentence(error: ValidationError) -> str:
    """Return the first problem as one sentence with key, value and remedy."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"] if not _names_a_type(str(part)))
    if first["type"] == "extra_forbidden":
        known = ", ".join(sorted(_known(first["loc"][:-1])))
        return f"Unknown setting {key!r}. Known there: {known}. Correct the name."
    expected = "; ".join(
        dict.fromkeys(each["msg"] for each in error.errors() if _same(each, first))
    )
    return f"{key} = {first['input']!r} is not possible: {expected}. Change the value."


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one["loc"][:2] == other["loc"][:2]


def _names_a_type(part: str) -> bool:
    """Say whether pydantic put a union member's name into the path."""
    return part.startswith(("literal[", "constrained-", "function-")) or part == "float"


def _known(path: Sequence[str | int]) -> list[str]:
    section: type[BaseModel] = Config
    for part in path:
        if isinstance(part, str) and part in section.model_fields:
            inner = section.model_fields[part].annotation
            section = inner if isinstance(inner, type) else GroupConfig
    return list(section.model_fields)
