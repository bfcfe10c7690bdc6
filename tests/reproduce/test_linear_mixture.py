"""The mixture of linear regressions: what is drawn is what is said."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey import Streams
from covey.data.clients import PopulationRequest
from covey.data.examples import NoShift, Preference, ShiftRange
from covey.data.population import Group, Population, PopulationSpec
from covey_papers.linear_mixture import LinearMixture

NOWHERE = ShiftRange(NoShift(), 0.0, 0.0)
SPEC = PopulationSpec(
    clients=10,
    groups=(Group("minority", 0.3, NOWHERE, 40), Group("majority", 0.7, NOWHERE, 60)),
    shift_per="image",
    holdout=0.2,
    audit_examples=30,
    pool=-1,
    non_members="matched",
)


def indifferent(_: str) -> Preference:
    return Preference(0.0, 1.0)


def population(mixture: LinearMixture, spec: PopulationSpec = SPEC) -> Population:
    request = PopulationRequest(
        folder=Path(),
        label="",
        spec=spec,
        streams=Streams(0),
        preference=indifferent,
        outputs=lambda *_: 1,
        keeps_ids=False,
    )
    return mixture.population(request)[0]


@settings(max_examples=20)
@given(
    groups=st.integers(1, 6),
    dimension=st.integers(1, 8),
    separation=st.floats(0.1, 10),
    seed=st.integers(0, 1000),
)
def test_optima_have_the_norm_and_are_as_far_apart_as_can_be(
    groups: int, dimension: int, separation: float, seed: int
):
    found = LinearMixture(dimension=dimension, noise=0.5, separation=separation).optima(
        groups, Streams(seed)
    )
    assert found.shape == (groups, dimension)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), separation)
    if groups <= dimension:
        apart = np.linalg.norm(found[:, None] - found, axis=2)
        off = apart[~np.eye(groups, dtype=bool)]
        np.testing.assert_allclose(off, np.sqrt(2) * separation)


def test_least_squares_finds_every_groups_optimum_and_the_noise():
    mixture = LinearMixture(dimension=4, noise=0.3, separation=2.0, condition=9.0)
    optima = mixture.optima(2, Streams(0))
    many = replace(SPEC, groups=tuple(replace(g, examples_per_client=2000) for g in SPEC.groups))
    for client in population(mixture, many).clients:
        assert client.group is not None
        x, y = client.train.inputs.numpy(), client.train.labels.numpy()
        found, _, _, _ = np.linalg.lstsq(x, y, rcond=None)
        np.testing.assert_allclose(found, optima[client.group], atol=0.1)
        np.testing.assert_allclose(x.var(axis=0), mixture.spectrum, rtol=0.2)
        assert np.std(y - x @ optima[client.group]) == pytest.approx(0.3, rel=0.1)
