"""A client's records under every weight of its own, from one head."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.heads import (
    Head,
    OwnWeight,
    Rows,
    Sums,
    scores_without_records,
    solved_head,
    squared_steps,
    sums_of,
)
from heads.test_leave_out import CLASSES, D, rows_of

WEIGHTS = st.integers(0, 256)


def at_weight(rows: Rows, weight: int) -> Rows:
    return Rows(rows.features, rows.labels, weight)


def head_of(
    clients: list[Rows], others: list[Rows], pooling: float, ridge: float
) -> Head:
    """A head whose M has this ridge, in numbers of its own and not of its unit."""
    own, rest, own_squared, rest_squared = (
        sums_of(each, D, CLASSES)
        for each in (clients, others, squared(clients), squared(others))
    )
    mean = own.matrices(rest, 1.0)[0].diagonal().mean()
    return solved_head(
        own, rest, pooling, ridge / float(mean), (own_squared, rest_squared)
    )


def squared(clients: list[Rows]) -> list[Rows]:
    return [at_weight(each, squared_steps(each.weight)) for each in clients]


@settings(max_examples=60)
@given(
    st.integers(0, 2**31),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.floats(0.5, 50),
    WEIGHTS,
    WEIGHTS,
    st.integers(1, 2 * D),
)
def test_any_weight_is_as_if_the_head_were_solved_with_it(  # noqa: PLR0913, PLR0917 - drawn
    seed: int, pooling: float, ridge: float, now: int, other: int, size: int
):
    draw = np.random.default_rng(seed)
    mine = rows_of(draw, size)
    beside = [rows_of(draw, weight=w) for w in (256, 100)]
    others = [rows_of(draw, weight=30)]
    present = head_of([at_weight(mine, now), *beside], others, pooling, ridge)
    found = OwnWeight.of(present, at_weight(mine, now)).at(other)
    moved = at_weight(mine, other)
    direct = head_of([moved, *beside], others, pooling, ridge)
    expected = scores_without_records(direct, moved)
    for name in ("scores", "without", "leverages", "variances"):
        torch.testing.assert_close(
            getattr(found, name), getattr(expected, name), rtol=5e-3, atol=2e-4
        )


def test_one_weight_for_all_is_none():
    """Scaled alike, sums make the same head, which tells as much of everybody."""
    draw = np.random.default_rng(5)
    clients = [rows_of(draw) for _ in range(3)]
    nothing = Sums.nothing(D, CLASSES)

    def head(weight: int) -> Head:
        own = [at_weight(each, weight) for each in clients]
        sums, square = sums_of(own, D, CLASSES), sums_of(squared(own), D, CLASSES)
        return solved_head(sums, nothing, 0.0, 0.7, (square, nothing))

    full, quarter = head(256), head(64)
    torch.testing.assert_close(quarter.theta, full.theta)
    one = scores_without_records(full, clients[0])
    same = scores_without_records(quarter, at_weight(clients[0], 64))
    torch.testing.assert_close(one.leverages, same.leverages)
    torch.testing.assert_close(one.variances, same.variances)
