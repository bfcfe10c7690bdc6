"""Parts that a script or a notebook defines: passed again, and known by their source."""

import linecache
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import covey
from covey.base import component_names as names

CELL = """
import torch
import covey

LARGEST = 4.0

def bounded(losses):
    return losses.clamp(max=LARGEST)

class Bounded(covey.Loss):
    share: float = 1.0

    def losses(self, outputs, labels):
        plain = torch.nn.functional.cross_entropy(outputs, labels, reduction="none")
        return self.share * bounded(plain)

class Half(covey.Algorithm):
    def round(self, state, clients, streams):
        everybody = clients.all_in(0, "shared")
        return clients.train_and_aggregate(state, everybody, streams)
"""
TINY = {
    "rounds": 3,
    "population": {"clients": 4, "examples_per_client": 20, "audit_examples": 0},
    "model.name": "linear",
    "engine.name": "reference",
    "risk.name": "none",
}
numbers = count(1)


def cell(text: str = CELL) -> dict[str, Any]:
    """Run a notebook's cell, of whose text alone the interpreter keeps the lines."""
    name = f"<cell {next(numbers)}>"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    made: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, name, "exec"), made)  # noqa: S102
    return made


def settings(made: dict[str, Any], **options: Any) -> dict[str, Any]:
    return TINY | {"train.loss": made["Bounded"](**options), "method": made["Half"]()}


@pytest.fixture(autouse=True)
def new_process() -> Callable[[], None]:
    """Forget what was passed, as a process does that ends."""

    def forget() -> None:
        names.passed.clear()

    forget()
    return forget


def stopped(folder: Path, config: dict[str, Any]) -> None:
    calls = iter(range(2))

    def observe(_: object) -> None:
        if next(calls, None) is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        covey.run(config=config, out=folder, observe=observe)


@pytest.mark.slow
def test_parts_are_passed_again_as_they_were_to_run(
    tmp_path: Path, new_process: Callable[[], None]
):
    whole = covey.run(config=settings(cell()), out=tmp_path / "whole")
    stopped(tmp_path / "cut", settings(cell()))
    new_process()
    said = r"run's config must come from .* covey\.load\(.*, config=\.\.\.\)\.resume"
    with pytest.raises(covey.RunError, match=said):
        covey.resume(tmp_path / "cut")
    again = covey.resume(tmp_path / "cut", config=settings(cell()))
    assert again.history == whole.history
    new_process()
    run = covey.load(tmp_path / "cut", config=settings(cell()))
    assert run.forget(min(run.names), answer="retrain", basis="erasure")
    new_process()
    assert covey.load(tmp_path / "cut").report().is_file()


@pytest.mark.parametrize(
    ("before", "after"),
    [("clamp(max", "clamp(min=0, max"), ("4.0", "5.0")],
    ids=["a function of its cell", "a number of its cell"],
)
def test_a_part_with_another_source_is_refused(
    before: str, after: str, tmp_path: Path, new_process: Callable[[], None]
):
    stopped(tmp_path / "run", settings(cell()))
    other = cell(CELL.replace(before, after))
    said = r"The source of train\.loss must be what began"
    for between in (lambda: None, new_process):
        between()
        with pytest.raises(covey.RunError, match=said):
            covey.resume(tmp_path / "run", config=settings(other))
    said = r"train\.loss must be the part that began .*python:Bounded .*'share': 0\.5"
    with pytest.raises(covey.RunError, match=said):
        covey.resume(tmp_path / "run", config=settings(cell(), share=0.5))
    more = cell(f"# a thought\n{CELL}\nprint(LARGEST)\n")
    assert covey.resume(tmp_path / "run", config=settings(more)).history.finished
