"""Reserved clients of the game are shifted as the real ones are: each client, or each image."""

from dataclasses import replace

import torch

from covey import Config, Examples, Streams
from covey.settings.run import BuiltRun, build_run
from covey_papers.game import _reserved  # pyright: ignore[reportPrivateUsage]

RANGES = (0.2, 0.5), (0.6, 1.0)


def built(per: str) -> BuiltRun:
    """A run whose data are images of white."""
    population = {
        "clients": 8,
        "examples_per_client": 10,
        "holdout": 0.0,
        "audit_examples": 200,
        "shift": "brightness",
        "minority": RANGES[0],
        "majority": RANGES[1],
        "shift_per": per,
    }
    method, risk = {"name": "fedavg"}, {"name": "none"}
    run = build_run(Config.of({"population": population, "method": method, "risk": risk}))
    unshifted = run.population.unshifted
    assert unshifted is not None
    white = Examples(torch.full_like(unshifted.inputs, 255), unshifted.labels)
    return replace(run, population=replace(run.population, unshifted=white))


def test_where_a_client_has_one_shift_each_reserved_client_has_one_of_its_own():
    run = built("client")
    reserved = _reserved(run, run.population.clients, Streams(0))
    assert set(reserved) == {0, 1}
    for group, sets in reserved.items():
        shades = [each.inputs.unique() for each in sets]
        assert all(len(own) == 1 for own in shades)
        assert len(torch.cat(shades).unique()) > len(sets) / 2
        low, high = RANGES[group]
        assert all(255 * low - 1 <= float(own) <= 255 * high + 1 for own in shades)


def test_else_each_image_has_its_own_and_they_are_the_matched_non_members():
    run = built("image")
    reserved = _reserved(run, run.population.clients, Streams(0))
    for group, sets in reserved.items():
        matched = {bytes(image.numpy()) for image in run.reference.by_group[group].inputs}
        assert all(bytes(image.numpy()) in matched for each in sets for image in each.inputs)
