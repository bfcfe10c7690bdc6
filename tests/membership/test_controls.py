"""The controls: memory must be found, and nothing must be found where there is none."""

from dataclasses import replace

import torch
from torch import nn

from covey import Recipe, ReferenceEngine, Streams
from covey.membership.controls import negative_control, positive_control
from covey.models.build import initial_params

LONG = Recipe(local_epochs=60, batch_size=10, learning_rate=0.1, momentum=0.9)


def test_memory_is_found_and_nothing_where_there_is_none(digits):
    with Streams(0).at("architecture").lent_to_torch():
        module = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    engine, params = ReferenceEngine(module), initial_params(module)
    some = digits.take(torch.arange(200))
    idle = replace(LONG, learning_rate=1e-9)
    learnt, untrained = (
        positive_control(engine, params, recipe, some, Streams(0)) for recipe in (LONG, idle)
    )
    assert learnt.risk > 0.7
    assert abs(untrained.risk - 0.5) < 3 * untrained.standard_error
    # Beyond 3 SE with probability 0.003, for each of three splits.
    for index in range(3):
        streams = Streams(0).at(index)
        found = negative_control(engine, params, digits.take(torch.arange(600)), streams)
        assert abs(found.risk - 0.5) < 3 * found.standard_error
        assert (found.members, found.non_members) == (300, 300)
