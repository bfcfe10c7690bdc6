"""Populations: who has which examples, and what they accept."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from covey import ConfigError, Examples, PublishedData, Streams
from covey.data.examples import Brightness, NoShift, Preference, Rotation, ShiftRange
from covey.data.partition import ByWriter, Dirichlet, Iid
from covey.data.population import Group, PopulationSpec, build_population, read_preferences

STILL = ShiftRange(NoShift(), 0.0, 0.0)
DARK = ShiftRange(Brightness(), 0.2, 0.4)
LIGHT = ShiftRange(Brightness(), 0.9, 1.0)

PLAIN = PopulationSpec(
    clients=4,
    groups=(Group("few", 0.25, STILL, 5), Group("many", 0.75, STILL, 10)),
    shift_per="image",
    holdout=0.2,
    audit_examples=6,
    pool=0,
    non_members="matched",
)
SHIFTED = replace(PLAIN, groups=(Group("few", 0.25, DARK, 5), Group("many", 0.75, LIGHT, 10)))


def numbered(count):
    """Images that carry their number: in the label, and white in their only pixel."""
    white = torch.full((count, 1, 1, 1), 255, dtype=torch.uint8)
    return Examples(white, torch.arange(count))


def source(count=100, test=None):
    return PublishedData("numbers", numbered(count), test, num_classes=count)


def prefer(name):
    return Preference(risk_weight=0.5, risk_threshold=int(name[-1]) / 10)


def build(spec=PLAIN, count=100, test=None, seed=0):
    return build_population(source(count, test), spec, Streams(seed), prefer)


def numbers(examples):
    return examples.labels.tolist()


def brightness(examples):
    return examples.inputs.flatten().float() / 255


def everything(population):
    """Every base image once: groups share their test images and non-members."""
    parts = [part for c in population.clients for part in (c.train, c.holdout)]
    parts += [population.test[0], population.non_members[0], population.pool]
    return [number for part in parts for number in numbers(part)]


def same(left, right):
    return torch.equal(left.inputs, right.inputs) and numbers(left) == numbers(right)


@given(
    seed=st.integers(0, 99),
    clients=st.integers(1, 12),
    share=st.floats(0.1, 0.9),
    pool=st.sampled_from([-1, 0, 7]),
)
def test_no_base_image_is_used_twice_and_none_is_lost(seed, clients, share, pool):
    few, many = PLAIN.groups
    groups = (replace(few, share=share), replace(many, share=1 - share))
    spec = replace(PLAIN, clients=clients, groups=groups, pool=pool)
    assert sorted(everything(build(spec, 150, seed=seed))) == list(range(150))


@given(seed=st.integers(0, 99))
@settings(max_examples=10)
def test_a_population_is_determined_by_the_seed(seed):
    first, second = build(SHIFTED, seed=seed), build(SHIFTED, seed=seed)
    for one, other in zip(first.clients, second.clients, strict=True):
        assert (one.name, one.handle, one.group) == (other.name, other.handle, other.group)
        assert same(one.train, other.train)
        assert same(one.holdout, other.holdout)
    assert everything(first) == everything(second)
    assert everything(first) != everything(build(SHIFTED, seed=seed + 1))


def test_groups_have_their_shares_and_sizes():
    clients = build().clients
    assert Counter(c.group for c in clients) == {0: 1, 1: 3}
    for client in clients:
        # 0.2 of 5 and of 10 examples are held out.
        expected = (4, 1) if client.group == 0 else (8, 2)
        assert (len(client.train), len(client.holdout)) == expected


@pytest.mark.parametrize(
    ("pool", "test", "sizes"),
    [(-1, None, (59, 0)), (0, None, (30, 29)), (10, None, (49, 10)), (0, 7, (7, 59))],
)
def test_test_and_pool_share_the_rest_without_a_test_file(pool, test, sizes):
    # 100 - (5 + 3 * 10) - 6 = 59 images are left.
    population = build(replace(PLAIN, pool=pool), test=None if test is None else numbered(test))
    assert [len(part) for part in population.test] == [sizes[0]] * 2
    assert len(population.pool) == sizes[1]


def test_shifted_examples_lie_in_their_groups_range_everywhere():
    population = build(SHIFTED)
    for client in population.clients:
        shift = (DARK, LIGHT)[client.group or 0]
        for part in (client.train, client.holdout):
            assert brightness(part).min() >= shift.low - 1 / 255
            assert brightness(part).max() <= shift.high + 1 / 255
    for parts in (population.test, population.non_members):
        assert brightness(parts[0]).max() < 0.41
        assert brightness(parts[1]).min() > 0.89
        assert numbers(parts[0]) == numbers(parts[1])
    assert brightness(population.pool).min() == 1


def test_pooled_non_members_are_shifted_by_the_mixture_of_groups():
    spec = replace(SHIFTED, non_members="pooled", audit_examples=400)
    one, other = build(spec, count=600).non_members
    assert same(one, other)
    assert len(one) == 400
    dark = brightness(one) < 0.5
    # 100 of 400 expected, standard deviation 9: five of them are one in a million.
    assert 55 <= int(dark.sum()) <= 145


QUARTERS = replace(
    PLAIN,
    clients=20,
    groups=tuple(
        Group(f"group-{turn}", 0.25, ShiftRange(Rotation(), turn, turn), 8)
        for turn in (0.0, 90.0, 180.0, 270.0)
    ),
    images="per-group",
)


def own(client):
    return numbers(client.train) + numbers(client.holdout)


@pytest.mark.parametrize("images", ["disjoint", "per-group"])
@pytest.mark.parametrize("partition", [Iid(), Dirichlet(), ByWriter()])
def test_in_every_partition_an_image_is_a_groups_once(images, partition):
    spec = replace(QUARTERS, images=images, partition=partition, pool=-1)
    file = source(500, numbered(7))
    labels = file.train.labels  # still told apart: one class, and one image, each
    writers = labels // 20
    population = build_population(replace(file, writers=writers), spec, Streams(1), prefer)
    aside = set(numbers(population.non_members[0]))
    for group in range(4):
        held = [own(c) for c in population.clients if c.group == group]
        images_of_group = [number for images in held for number in images]
        assert len(images_of_group) == len(set(images_of_group)) == 40
        assert not aside & set(images_of_group)
        if isinstance(partition, ByWriter):
            assert all(len({n // 20 for n in images}) == 1 for images in held)
    everything = [number for client in population.clients for number in own(client)]
    assert (len(set(everything)) == 160) == (images == "disjoint")


def test_csv_and_toml_say_the_same(tmp_path):
    table = tmp_path / "who.csv"
    table.write_text("name, risk_threshold, risk_weight\na, 0.6, 0.25\nb, 0.8,\n")
    tree = tmp_path / "who.toml"
    tree.write_text("a = {risk_threshold = 0.6, risk_weight = 0.25}\n[b]\nrisk_threshold = 0.8")
    expected = {"a": Preference(0.25, 0.6), "b": Preference(0.0, 0.8)}
    assert read_preferences(table) == read_preferences(tree) == expected


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("name,risk_threshold\na,high\n", "give a a risk_threshold"),
        ("name,risk_threshold\na,1.5\n", r"1\.5 is not in \[0, 1\]"),
        ("name,risk_weight\na,0.5\n", "risk_threshold"),
        ("who,risk_threshold\na,0.5\n", "no column is name"),
        ("name,risk_threshold\n", "a table per client, found no client in"),
    ],
)
def test_bad_files_are_refused_with_the_client_named(tmp_path, content, said):
    path = tmp_path / "who.csv"
    path.write_text(content)
    with pytest.raises(ConfigError, match=said):
        read_preferences(path)
    with pytest.raises(ConfigError, match=r"absent\.csv"):
        read_preferences(tmp_path / "absent.csv")
