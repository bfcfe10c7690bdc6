"""Clients that collude: what they send, by hand, and what each aggregation makes of it."""

import pytest
import torch

from covey.aggregation import ClientUpdate
from covey.components.built_ins import ROBUST
from covey.params import norm
from covey.rng import Streams
from covey_papers.bench import (
    AGAINST_MINORITY,
    ATTACKS,
    MERGES,
    ON_MINORITY,
    POISONING,
    Cell,
    Poisoned,
    cells,
    suffered,
)

ROUNDS = 10


def merged(attack: str, *values: float, colluders: int, minority: int = 0) -> float:
    names = [f"C{i}" for i in range(len(values))]
    sent = [
        ClientUpdate(name, 0, {"w": torch.tensor([value])}, 1.0)
        for name, value in zip(names, values, strict=True)
    ]
    last = names[len(names) - minority :]
    merge = Poisoned(attack=attack, colluders=names[:colluders], minority=last)
    start = ({"w": torch.zeros(1)},)
    return float(merge.aggregate(start, sent, Streams(0)).clusters[0]["w"])


def test_what_colluders_send_by_hand():
    # the first of five lies; the honest ones send 2, 2, 4, 4: mean 3, median norm 3, std 1
    def sent(attack: str, own: float) -> float:
        return merged(attack, own, 2.0, 2.0, 4.0, 4.0, colluders=1) * 5 - 12

    assert sent("none", 3.0) == pytest.approx(3.0)
    assert sent("sign flip", 3.0) == pytest.approx(-12.0)
    assert sent("sign flip", 7.0) == pytest.approx(-15.0)  # 5 times the median at most
    assert sent("scaling", 1.0) == pytest.approx(5.0)
    assert sent("a little is enough", 3.0) == pytest.approx(3.0 - 1.5)


def test_a_replacement_turns_the_mean_round():
    # n = 5, m = 3, honest 2 and 4: v = - (2 * 5 / 3 - 1) * 3 = -7, so the mean is -3
    assert merged("replacement", 9.0, 9.0, 9.0, 2.0, 4.0, colluders=3) == pytest.approx(
        -3.0
    )


def test_who_pushes_against_the_minority_sends_its_mirror_image():
    # the majority's mean is 2, the minority's 5: 2 + (2 - 5) = -1
    pushed = merged(AGAINST_MINORITY, 9.0, 2.0, 2.0, 5.0, colluders=1, minority=1)
    assert pushed * 4 - 9 == pytest.approx(-1.0)
    # without the other part of the clients, training is honest
    alone = merged(AGAINST_MINORITY, 3.0, 2.0, 2.0, colluders=1)
    assert alone * 3 == pytest.approx(7.0)


@pytest.mark.slow
def test_a_minority_is_pushed_out_of_one_model_from_inside_the_bounds():
    # without colluders: .838 and .687
    pushed = suffered(Cell(ROBUST, AGAINST_MINORITY, 0.3, "fedavg", 0), 15)
    assert pushed.majority > 0.8
    assert pushed.minority < 0.5
    apart = suffered(Cell(ROBUST, AGAINST_MINORITY, 0.3, "ifca", 0), 15)
    assert apart.minority > 0.75


@pytest.mark.slow
def test_a_bound_on_newcomers_keeps_a_flooded_cluster_its_own():
    def played(method: str) -> float:
        return suffered(Cell(ROBUST, "a little is enough", 0.2, method, 0), 15).minority

    honest, flooded = played("ifca"), played("flooded ifca")
    assert honest - flooded > 0.2
    assert honest - played("flooded bounded ifca") < 0.05
    assert honest - played("founded bounded ifca") > 0.1  # from the start on: no help


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_attack_sends_more_than_a_server_accepts(attack: str):
    generator = torch.Generator().manual_seed(0)
    honest = [{"w": torch.randn(50, generator=generator)} for _ in range(4)]
    longest = 5 * torch.tensor([norm(each) for each in honest]).quantile(0.5)
    updates = [
        ClientUpdate(f"C{i}", 0, each, 1.0)
        for i, each in enumerate([honest[0], *honest])
    ]
    start = ({"w": torch.ones(50)},)
    merge = Poisoned(attack=attack, colluders=["C0"])
    moved = merge.aggregate(start, updates, Streams(0)).clusters[0]["w"] - 1
    lie = {"w": moved * 5 - torch.stack([each["w"] for each in honest]).sum(dim=0)}
    assert norm(lie) <= 1.0001 * float(longest)


def test_a_fifth_that_colludes_breaks_the_mean_and_not_the_default_of_deployments():
    # without colluders the mean is right in .798, the minority in .698
    mean = suffered(Cell("mean", "replacement", 0.2, "fedavg", 0), ROUNDS)
    robust = suffered(Cell(ROBUST, "replacement", 0.2, "fedavg", 0), ROUNDS)
    assert mean.accuracy < 0.2
    assert robust.accuracy > 0.65
    assert robust.minority > 0.55


def test_the_bench_plays_every_attack_at_every_share():
    played = cells(POISONING)
    shares = {(c.attack, c.share) for c in played if c.method == "fedavg"}
    assert len(shares) == 1 + 6 * 3 + 1
    assert (AGAINST_MINORITY, 0.3) in shares
    assert any(c.method == "flooded ifca" for c in played)
    assert {c.merge for c in cells(ON_MINORITY)} == {ROBUST}
    assert {c.merge for c in played} == set(MERGES)
    assert len(played) == len(set(played))
