"""What must hold between settings for a run to be as private as they ask."""

from covey.config.sections import MergeConfig, Sections

__all__ = ["privacy_problems"]


def privacy_problems(config: Sections) -> list[str]:
    """Return why these settings cannot be private as they ask."""
    problems = [*_sound_problems(config.merge), *_client_problems(config)]
    problems += _pooling_problems(config)
    return [*problems, *_choice_problems(config), *_record_problems(config)]


def _pooling_problems(config: Sections) -> list[str]:
    """Return why pooling tells what noise on clients should hide."""
    method = config.method
    noisy = config.privacy.client_noise > 0 or config.merge.noise == "sound"
    if not (noisy and method.pooling != 0 and "ifca" in method.name):
        return []
    return [
        f"Pooled models are weighted by how many examples their clients hold, which noise "
        f"on clients does not hide, found method.pooling = {method.pooling!r}. Set "
        f"method.pooling = 0, or use privacy.record_noise."
    ]


def _record_problems(config: Sections) -> list[str]:
    """Return why gradients of single examples are not differentially private."""
    privacy = config.privacy
    problems: list[str] = []
    if privacy.record_noise > 0 and privacy.record_clip == 0:
        problems.append(
            "privacy.record_noise hides an example only if its gradient is clipped, "
            "found privacy.record_clip = 0. Set it, for example to 1.0."
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


def _client_problems(config: Sections) -> list[str]:
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
        method.name != "local" and method.num_clusters == 1
    )
    if config.train.participation < 1 and not alone:
        problems.append(
            f"privacy.client_noise with train.participation < 1 hides who took part, "
            f"which the sizes of several clusters tell, found method.name = "
            f"{method.name!r}. Set train.participation = 1, or method.name = 'fedavg'."
        )
    return problems


def _choice_problems(config: Sections) -> list[str]:
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
