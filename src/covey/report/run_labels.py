"""Labels that distinguish runs: method, data, or only the seed."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import tomli_w

from covey.components.built_ins import BASELINE
from covey.components.foreign import built_in_options
from covey.config import flat, unused
from covey.report.queries import Reported

__all__ = [
    "labels",
    "method_of",
    "selection_of",
    "settings_of",
    "twin",
    "with_baselines",
]

INERT = ("engine.", "checkpoints.", "data.dir")
"""Settings that change no result."""
OF_THE_METHOD = ("method.", "redteam.")
NAMED = ("method.name", "method.selection")


def settings_of(run: Reported) -> dict[str, Any]:
    """Return the run's settings as `section.key` to value, lists as texts."""
    return dict(_settings(run.config_toml))


@lru_cache(maxsize=64)
def _settings(config_toml: str) -> Mapping[str, Any]:
    """Return the settings, parsed once: pages ask for them at every round."""
    found = flat(tomllib.loads(config_toml))
    return {
        key: value if isinstance(value, (str, int, float)) else str(value)
        for key, value in found.items()
    }


def method_of(run: Reported) -> str:
    """Return the method's name, as it was set or else as it was recorded."""
    recorded = run.history.started.method if run.history.started else "unknown"
    return settings_of(run).get("method.name", recorded)


def selection_of(run: Reported) -> str:
    """Return how clients choose, where the method lets them."""
    selection = settings_of(run).get("method.selection", "")
    options = built_in_options("algorithm", method_of(run))
    return selection if "selection" in options else ""


def twin(run: Reported) -> tuple[tuple[str, Any], ...]:
    """Return what runs must share, seed included, to differ by their method alone."""
    return tuple(sorted(_without(settings_of(run), *INERT, *OF_THE_METHOD).items()))


def labels(runs: Sequence[Reported]) -> list[str]:
    """Return per run its method and what distinguishes it; seeds of a setting agree."""
    matters = [
        _without(
            settings_of(run), "seed", *INERT, *unused(method_of(run), selection_of(run))
        )
        for run in runs
    ]
    keys = dict.fromkeys(key for each in matters for key in each if key not in NAMED)
    differing = [key for key in keys if len({m[key] for m in matters if key in m}) > 1]
    return [
        " ".join(
            [
                method_of(run),
                *filter(None, [selection_of(run)]),
                *(f"{key}={each[key]}" for key in differing if key in each),
            ]
        )
        for run, each in zip(runs, matters, strict=True)
    ]


def with_baselines(runs: Sequence[Reported]) -> list[Reported]:
    """Return the runs, and their FedAvg baselines as runs of their own, each once."""
    known = {twin(run) for run in runs if method_of(run) == BASELINE}
    every = list(runs)
    for run in runs:
        if run.baseline is not None and twin(run) not in known:
            known.add(twin(run))
            every.append(
                replace(
                    run,
                    name=f"{run.name} (its FedAvg)",
                    history=run.baseline,
                    config_toml=_as_fedavg(run.config_toml),
                    baseline=None,
                )
            )
    return every


def _as_fedavg(config_toml: str) -> str:
    return tomli_w.dumps({**tomllib.loads(config_toml), "method": {"name": BASELINE}})


def _without(settings: Mapping[str, Any], *prefixes: str) -> dict[str, Any]:
    return {k: v for k, v in settings.items() if not k.startswith(prefixes)}
