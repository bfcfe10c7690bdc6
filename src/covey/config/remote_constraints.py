"""What cannot be asked of a federation whose clients are really apart."""

from collections.abc import Iterator

from covey.config.data_constraints import is_remote
from covey.config.sections import Sections

__all__ = ["apart_problems"]

ASKED = ("loss", "weighted", "threshold")


def apart_problems(config: Sections) -> Iterator[str]:
    """Yield why these settings need somebody who sees every client's data."""
    if not is_remote(config):
        return
    for key, fits, why, remedy in _needs(config):
        if not fits:
            section, name = key.split(".")
            found = getattr(getattr(config, section), name)
            yield (
                f"engine.name = {config.engine.name!r} has clients that keep their "
                f"data to themselves, and {key} = {found!r} {why}. {remedy}"
            )


def _needs(config: Sections) -> Iterator[tuple[str, bool, str, str]]:
    """Yield setting, whether it fits, why it does not, and what to do."""
    method, unlearning = config.method, config.unlearning
    yield (
        "model.task",
        config.model.task == "multiclass",
        "is nothing that clients tell of their labels",
        "Set it to 'multiclass'.",
    )
    yield (
        "method.name",
        method.name != "local",
        "has no server",
        "Choose another method.",
    )
    yield (
        "method.selection",
        method.selection in ASKED
        or ":" in method.selection
        or method.name != "ifca-mir",
        "compares what all clients measured",
        f"Choose one of {', '.join(ASKED)}.",
    )
    yield (
        "method.smoothing",
        method.smoothing == 0,
        "keeps every client's losses on the server",
        "Set it to 0.",
    )
    yield (
        "method.pooling",
        method.pooling == 0,
        "weighs models by how many examples clients hold",
        "Set it to 0.",
    )
    yield (
        "privacy.record_noise",
        config.privacy.record_noise == 0,
        "is accounted by how many examples clients hold",
        "Set it to 0.",
    )
    yield (
        "unlearning.store_updates",
        unlearning.store_updates == 0,
        "asks clients to calibrate what they sent",
        "Set it to 0.",
    )
    yield (
        "unlearning.request_probability",
        unlearning.request_probability == 0,
        "is for simulations",
        "Set it to 0: clients ask for themselves.",
    )
