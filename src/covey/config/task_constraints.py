"""What must hold between a task and what reads the model's answers."""

from collections.abc import Iterator

from covey.config.sections import Sections

__all__ = ["task_problems"]


def task_problems(config: Sections) -> Iterator[str]:
    """Yield what needs to know what is right, or how large a loss can be."""
    if config.model.task != "regression":
        return
    if config.method.pooling == "risk":
        yield (
            "method.pooling = 'risk' compares losses with that of guessing, which has no "
            "bound for a number, found model.task = 'regression'. Set a share."
        )
    if config.privacy.selection_noise > 0:
        yield (
            f"privacy.selection_noise is scaled to the largest loss, which a number does "
            f"not have, found {config.privacy.selection_noise:g} with model.task = "
            f"'regression'. Set it to 0."
        )
