"""What must hold between a task, its data, and what reads the model's answers."""

from collections.abc import Iterator

from covey.config.sections import DataConfig, Sections

__all__ = ["task_problems"]

MIXTURE_KEYS = ("dimension", "noise", "separation", "condition")


def task_problems(config: Sections) -> Iterator[str]:
    """Yield why these settings cannot be had with this task, or with these data."""
    yield from _number_problems(config)
    if config.data.name == "linear-mixture":
        yield from _mixture_problems(config)
        return
    for key in MIXTURE_KEYS:
        if (found := getattr(config.data, key)) != DataConfig.model_fields[key].default:
            yield (
                f"data.{key} is for data.name = 'linear-mixture', found {found:g} with "
                f"data.name = {config.data.name!r}. Remove it."
            )


def _number_problems(config: Sections) -> Iterator[str]:
    """Yield what needs to know what is right, or how large a loss can be."""
    if config.model.task != "regression":
        return
    for key, found, wrong, why, remedy in (
        (
            "redteam.source",
            config.redteam.source,
            "shadow",
            "compares accuracies, which a number does not have",
            "Choose another source.",
        ),
        (
            "method.pooling",
            config.method.pooling,
            "risk",
            "compares losses with that of guessing, which has no bound for a number",
            "Set a share.",
        ),
    ):
        if found == wrong:
            yield f"{key} = {wrong!r} {why}, found model.task = 'regression'. {remedy}"
    if config.privacy.selection_noise > 0:
        yield (
            f"privacy.selection_noise is scaled to the largest loss, which a number does "
            f"not have, found {config.privacy.selection_noise:g} with model.task = "
            f"'regression'. Set it to 0."
        )


def _mixture_problems(config: Sections) -> Iterator[str]:
    """Yield what data that are drawn, and not read, cannot be asked for."""
    for key, found, needed, why in (
        ("model.task", config.model.task, "regression", "their labels are numbers"),
        ("population.shift", config.population.shift, "none", "they are no images"),
        (
            "audit.non_members",
            config.audit.non_members,
            "matched",
            "each group draws its own",
        ),
        (
            "population.partition",
            config.population.partition,
            "iid",
            "there are no classes or writers to deal by",
        ),
        (
            "population.images",
            config.population.images,
            "disjoint",
            "nothing is dealt out of a file",
        ),
    ):
        if found != needed:
            yield (
                f"data.name = 'linear-mixture' draws its data, and {why}: {key} must be "
                f"{needed!r}, found {found!r}. Set {key} = {needed!r}."
            )
