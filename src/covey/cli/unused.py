"""Settings without effect: reported before a run, and part of its output."""

from collections.abc import Iterable
from typing import Any

from covey.cli.consoles import console
from covey.config import Config, Unheeded, unheeded

__all__ = ["as_answer", "tell", "unused_everywhere", "unused_settings"]


def unused_settings(config: Config) -> list[dict[str, Any]]:
    """Return what `unused_settings` is in a command's answer."""
    return [as_answer(each) for each in unheeded(config)]


def as_answer(each: Unheeded) -> dict[str, Any]:
    """Return one such setting for a program."""
    return {"key": each.key, "value": each.value, "reason": each.reason}


def tell(found: Iterable[Unheeded]) -> None:
    """Say on standard error which settings do nothing, one line each."""
    for each in found:
        console.print(f"note: {each.told}", style="yellow", soft_wrap=True)


def unused_everywhere(configs: Iterable[Config]) -> tuple[Unheeded, ...]:
    """Return the settings that do nothing in any of several runs."""
    first, *others = (unheeded(config) for config in configs)
    keys = [{each.key for each in found} for found in others]
    return tuple(each for each in first if all(each.key in found for found in keys))
