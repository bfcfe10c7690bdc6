from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from covey import ConfigError, DataError, Examples, Source, Streams
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
    return Source("numbers", numbered(count), test, num_classes=count)


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


@settings(max_examples=30)
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


def test_building_leaves_the_global_generators_alone():
    torch_before = torch.get_rng_state()
    numpy_before = str(np.random.get_state())  # noqa: NPY002
    build(SHIFTED)
    assert torch.equal(torch.get_rng_state(), torch_before)
    assert str(np.random.get_state()) == numpy_before  # noqa: NPY002


@pytest.mark.parametrize("name", ["none.csv", "none.toml"])
def test_a_file_of_preferences_that_names_no_client_is_refused(tmp_path, name):
    (tmp_path / name).write_text("name,risk_threshold\n" if name.endswith("csv") else "")
    with pytest.raises(ConfigError, match="found no client in"):
        read_preferences(tmp_path / name)


def test_clients_are_named_sorted_and_carry_their_own_preference():
    clients = build().clients
    assert [c.name for c in clients] == [f"client-0000{i}" for i in range(4)]
    assert [c.preference.risk_threshold for c in clients] == [0, 0.1, 0.2, 0.3]
    assert len({c.handle for c in clients}) == 4
    assert all(len(c.handle) == 14 and c.handle.startswith("h-") for c in clients)


def test_groups_have_their_shares_and_sizes():
    clients = build().clients
    assert Counter(c.group for c in clients) == {0: 1, 1: 3}
    for client in clients:
        # 0.2 of 5 and of 10 examples are held out.
        expected = (4, 1) if client.group == 0 else (8, 2)
        assert (len(client.train), len(client.holdout)) == expected


def test_the_members_of_the_groups_are_random():
    minority = {
        next(c.name for c in build(seed=seed).clients if c.group == 0) for seed in range(20)
    }
    assert len(minority) > 1  # all 20 alike by chance: 4 * (1/4)**20


@pytest.mark.parametrize(
    ("pool", "test_size", "pool_size"), [(-1, 59, 0), (0, 30, 29), (10, 49, 10)]
)
def test_without_a_test_file_test_and_pool_share_the_rest(pool, test_size, pool_size):
    # 100 - (5 + 3 * 10) - 6 = 59 images are left.
    population = build(replace(PLAIN, pool=pool))
    assert [len(test) for test in population.test] == [test_size] * 2
    assert len(population.pool) == pool_size


@pytest.mark.parametrize(("pool", "pool_size"), [(-1, 0), (0, 59), (10, 10)])
def test_with_a_test_file_the_pool_has_the_rest(pool, pool_size):
    population = build(replace(PLAIN, pool=pool), test=numbered(7))
    assert [numbers(test) for test in population.test] == [list(range(7))] * 2
    assert len(population.pool) == pool_size


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


def test_a_client_draws_once_or_once_per_image():
    wide = replace(SHIFTED.groups[1], shift=ShiftRange(Brightness(), 0.0, 1.0), share=1.0)
    spec = replace(SHIFTED, groups=(wide,))
    for client in build(replace(spec, shift_per="client")).clients:
        both = torch.cat([brightness(client.train), brightness(client.holdout)])
        assert len(both.unique()) == 1
    amounts = [brightness(client.train) for client in build(spec).clients]
    assert all(len(each.unique()) > 1 for each in amounts)
    assert not torch.equal(amounts[0], amounts[1])


def test_a_clients_shift_does_not_depend_on_the_others():
    alone = replace(SHIFTED, groups=SHIFTED.groups[1:], clients=1)
    first = build(alone).clients[0]
    among_others = build(replace(alone, clients=4)).clients[0]
    assert same(first.train, among_others.train)


def test_untransformed_non_members_are_the_files_own_images():
    population = build(replace(SHIFTED, non_members="untransformed"))
    assert all(brightness(part).min() == 1 for part in population.non_members)


def test_pooled_non_members_are_shifted_by_the_mixture_of_groups():
    spec = replace(SHIFTED, non_members="pooled", audit_examples=400)
    one, other = build(spec, count=600).non_members
    assert same(one, other)
    assert len(one) == 400
    dark = brightness(one) < 0.5
    # 100 of 400 expected, standard deviation 9: five of them are one in a million.
    assert 55 <= int(dark.sum()) <= 145


@pytest.mark.parametrize(
    ("spec", "count", "test"),
    [
        (PLAIN, 41, None),
        (PLAIN, 40, numbered(5)),
        (replace(PLAIN, pool=10), 51, None),
        (replace(PLAIN, pool=10), 50, numbered(5)),
    ],
)
def test_too_few_images_are_refused_with_the_numbers(spec, count, test):
    build(spec, count + 1, test)
    with pytest.raises(DataError, match="35 images for 4 clients, 6 for") as caught:
        build(spec, count, test)
    assert f"numbers has {count}" in str(caught.value)


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


@pytest.mark.parametrize("pool", [-1, 0, 10])
def test_per_group_every_group_is_dealt_all_images_but_those_aside(pool):
    spec = replace(QUARTERS, pool=pool)
    # The largest group needs 5 * 8 images, and 6 are kept for the audit.
    population = build(spec, 60, test=numbered(7))
    aside = numbers(population.non_members[0]) + numbers(population.pool)
    assert len(aside) == 6 + {-1: 0, 0: 14, 10: 10}[pool]
    assert len(set(aside)) == len(aside)
    held = []
    for group in range(4):
        clients = [c for c in population.clients if c.group == group]
        images = [number for client in clients for number in own(client)]
        assert [len(own(client)) for client in clients] == [8] * 5
        assert len(set(images)) == 40
        assert not set(images) & set(aside)
        held.append(set(images))
    assert all(one & other for one, other in combinations(held, 2))
    first = [own(c) for c in population.clients]
    assert len({tuple(images) for images in first}) == 20  # every group's own order
    everywhere = set.intersection(*held)
    assert (len(everywhere) == 40) == (pool == 0)  # the pool takes what is left


def test_per_group_the_same_image_is_turned_by_each_groups_angle():
    image = torch.arange(49, dtype=torch.uint8).view(1, 1, 7, 7)
    spec = replace(QUARTERS, clients=4, audit_examples=0, pool=-1, holdout=0.0)
    groups = tuple(replace(group, examples_per_client=1) for group in spec.groups)
    one = Examples(image, torch.zeros(1, dtype=torch.int64))
    population = build_population(
        Source("one", one, one, num_classes=1), replace(spec, groups=groups), Streams(0), prefer
    )
    for client in population.clients:
        turned = torch.rot90(image, client.group or 0, dims=(2, 3))
        assert client.train.inputs.tolist() == turned.tolist()


def test_per_group_the_smaller_groups_take_what_they_need():
    groups = (replace(QUARTERS.groups[0], examples_per_client=3), *QUARTERS.groups[1:])
    population = build(replace(QUARTERS, groups=groups, pool=-1), 47)
    for client in population.clients:
        assert len(own(client)) == (3 if client.group == 0 else 8)
    assert len(population.test[0]) == 1
    with pytest.raises(DataError, match="40 images for the clients of its largest"):
        build(replace(QUARTERS, groups=groups, pool=-1), 46)


def by_ten(count=200):
    """A file of images that are all alike, in ten classes."""
    white = torch.full((count, 1, 1, 1), 255, dtype=torch.uint8)
    examples = Examples(white, torch.arange(count) % 10)
    return Source("tens", examples, examples, num_classes=10)


def test_a_dirichlet_population_is_skewed_and_what_is_aside_is_not():
    spec = replace(PLAIN, partition=Dirichlet(alpha=0.01), clients=8)
    tens = by_ten(2_000)
    population = build_population(tens, replace(spec, audit_examples=1_000), Streams(0), prefer)
    for client in population.clients:
        assert len(own(client)) == (5 if client.group == 0 else 10)
        assert len(set(own(client))) <= 3
    same_but_iid = replace(spec, audit_examples=1_000, partition=Iid())
    iid = build_population(tens, same_but_iid, Streams(0), prefer)
    assert numbers(population.non_members[0]) == numbers(iid.non_members[0])
    assert len(set(numbers(population.non_members[0]))) == 10


@pytest.mark.parametrize("images", ["disjoint", "per-group"])
@pytest.mark.parametrize("partition", [Dirichlet(), ByWriter()])
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


@pytest.mark.parametrize(
    ("pool", "test", "sizes"),
    [(-1, None, (30, 0)), (0, None, (15, 15)), (10, None, (25, 10)), (0, 7, (7, 30))],
)
def test_half_of_what_is_left_stays_to_choose_from(pool, test, sizes):
    # 100 - (5 + 3 * 10) - 6 = 59 images are left, or 49 beside a pool of 10.
    spec = replace(PLAIN, partition=Dirichlet(), pool=pool)
    population = build(spec, test=None if test is None else numbered(test))
    assert (len(population.test[0]), len(population.pool)) == sizes


def test_without_known_writers_none_can_be_dealt_by():
    with pytest.raises(DataError, match=r"numbers's files do not say"):
        build(replace(PLAIN, partition=ByWriter()))


def test_of_several_labels_the_most_even_one_is_dealt_by():
    tens = by_ten()
    digit = tens.train.labels
    several = torch.stack([digit < 9, digit % 2 == 0, digit < 1], dim=1).long()
    spec = replace(PLAIN, partition=Dirichlet(alpha=0.01))
    population = build_population(
        replace(tens, train=replace(tens.train, labels=several)), spec, Streams(0), prefer
    )
    even = [len(set(c.train.labels[:, 1].tolist())) for c in population.clients]
    assert sum(count == 1 for count in even) > len(even) / 2
