"""Parameters: their arithmetic and the files they are written to."""

import copy
import pickle
from collections.abc import Mapping

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from covey import Params
from covey.base import params as tensor_bytes
from covey.base.params import (
    FlatParams,
    add,
    add_scaled,
    flat,
    flatten,
    model_hash,
    named,
    not_finite,
    safetensors_pieces,
    scale,
    subtract,
    subtracted_in_place,
    unprefixed,
)

# Multiples of 1/8 are exact in float32, and so are their sums: laws hold bit for bit.
entries = st.lists(st.integers(-80, 80).map(lambda n: n / 8), min_size=6, max_size=6)


@st.composite
def points(draw: st.DrawFn) -> dict[str, Tensor]:
    values = torch.tensor(draw(entries))
    count = torch.tensor(draw(st.integers(0, 9)))
    return {"b": values[:4].view(2, 2), "a": values[4:], "count": count}


def same(left: Params, right: Params) -> bool:
    return list(left) == list(right) and all(
        torch.equal(left[name], right[name]) and left[name].dtype == right[name].dtype
        for name in left
    )


@pytest.mark.usefixtures("_nothing_is_small")
@given(points(), points(), points())
def test_models_are_points_of_a_vector_space(x, y, z):
    assert same(add(x, y), add(y, x))
    assert same(add(add(x, y), z), add(x, add(y, z)))
    assert same(subtract(add(x, y), y), x)
    assert same(add(y, subtract(x, y)), x)
    assert same(scale(x, 1.0), x)
    assert same(scale(scale(x, 0.5), 2.0), x)
    twice, zero = flatten(scale(x, 2.0)), flatten(subtract(x, x))
    assert torch.equal(twice, flatten(add(x, x)))
    assert not zero.any()
    assert torch.equal(flatten(scale(add(x, y), 0.5)), flatten(add(scale(x, 0.5), scale(y, 0.5))))


@pytest.mark.usefixtures("_nothing_is_small")
def test_counters_are_not_coordinates():
    model = {"w": torch.tensor([1.0, 2.0]), "n": torch.tensor(7)}
    assert int(scale(model, 0.5)["n"]) == 7
    assert flatten(model).tolist() == [1.0, 2.0]


@pytest.mark.usefixtures("_nothing_is_small")
@given(st.lists(points(), max_size=12))
def test_prefixing_can_be_undone(models):
    tensors = named(models) | {"other/0/x": torch.ones(1)}
    restored = unprefixed(tensors)
    assert len(restored) == len(models)  # twelve: "10" does not sort before "2"
    assert all(same(*pair) for pair in zip(models, restored, strict=True))
    assert unprefixed({"other/0/x": torch.ones(1)}) == ()


MODEL = {"w": torch.zeros(2, 2), "b": torch.ones(2), "n": torch.tensor(3)}


def changed(name: str, value: Tensor) -> Mapping[str, Tensor]:
    return {**MODEL, name: value}


@pytest.mark.usefixtures("_nothing_is_small")
@pytest.mark.parametrize(
    "other",
    [
        [changed("w", torch.tensor([[0.0, 0.0], [0.0, 1e-30]]))],
        [changed("b", torch.tensor([1.0, 1.0000001]))],
        [changed("n", torch.tensor(4))],
        [changed("b", torch.ones(2, dtype=torch.float64))],
        [changed("w", torch.zeros(4))],
        [changed("c", torch.zeros(1))],
        [MODEL, MODEL],
        [],
    ],
)
def test_the_hash_changes_with_every_entry(other):
    assert model_hash(other) != model_hash([MODEL])


@pytest.mark.usefixtures("_nothing_is_small")
def test_the_hash_ignores_shared_memory_strides_and_the_order_of_names():
    block = torch.arange(8.0)
    views = {"x": block[:4].view(2, 2), "y": block[4:], "z": block[:4].view(2, 2).T}
    copies = {name: views[name].clone().contiguous() for name in ("z", "y", "x")}
    assert model_hash([views, views]) == model_hash([copies, dict(copies)])
    assert len(model_hash([views])) == 64


# a file's bytes, a piece at a time


DTYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=9).filter(
    lambda name: name != "__metadata__"
)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    values = torch.arange(torch.Size(shape).numel()).reshape(shape)
    tensor = values.to(draw(st.sampled_from(DTYPES)))
    return tensor.transpose(0, -1) if shape and draw(st.booleans()) else tensor


@pytest.fixture(scope="module")
def _nothing_is_small():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor_bytes, "SMALL", -1)
        yield


@pytest.mark.usefixtures("_nothing_is_small")
@settings(max_examples=100)
@given(
    st.dictionaries(NAMES, tensors(), max_size=6),
    st.one_of(st.none(), st.text(max_size=9).map(lambda text: {"covey": text})),
)
def test_the_pieces_are_the_file(params: dict[str, Tensor], metadata: dict[str, str] | None):
    contiguous = {name: value.contiguous() for name, value in params.items()}
    whole = safetensors.torch.save(contiguous, metadata)
    assert b"".join(safetensors_pieces(params, metadata)) == whole


@pytest.mark.usefixtures("_nothing_is_small")
def test_models_that_share_memory_have_the_hash_of_equal_models_that_do_not(monkeypatch):
    weights = torch.randn(8, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    lying = weights.contiguous(memory_format=torch.channels_last)
    shared = model_hash([{"w": lying}, {"w": lying, "n": torch.tensor(3)}])
    monkeypatch.setattr(tensor_bytes, "SMALL", 2**20)
    untied = [{"w": weights}, {"w": weights.clone(), "n": torch.tensor(3)}]
    assert shared == model_hash(untied)


@pytest.mark.usefixtures("_nothing_is_small")
@given(points(), points(), st.sampled_from([0.5, 1.0, 3.0]))
def test_a_model_as_one_vector_comes_to_the_bits_of_its_entries(left, right, factor):
    del left["count"], right["count"]
    total, one = dict(scale(left, factor)), flat(scale(left, factor))
    add_scaled(total, right, factor)
    assert isinstance(one, FlatParams)
    add_scaled(one, flat(right), factor)
    assert same(one, total)
    assert same(subtracted_in_place(flat(left), flat(right)), subtract(left, right))
    assert same(scale(flat(left), factor), scale(left, factor))
    assert not_finite(flat(left)) == ""
    assert not_finite(flat({**left, "b": left["b"] / 0})) == not_finite({"b": left["b"] / 0})


def pickled(model: Params) -> dict[str, Tensor]:
    return pickle.loads(pickle.dumps(model))  # noqa: S301 - our own


@pytest.mark.usefixtures("_nothing_is_small")
@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
def test_a_copy_of_a_vectors_entries_is_a_vectors_again(copied):
    model = flat({"a": torch.ones(3), "b": torch.ones(2, 2)})
    twin = copied(model)
    subtracted_in_place(twin, model)
    assert same(twin, {"a": torch.zeros(3), "b": torch.zeros(2, 2)})
    assert same(model, {"a": torch.ones(3), "b": torch.ones(2, 2)})
    with pytest.raises(TypeError, match="dict"):
        twin["a"] = torch.zeros(3)
    with pytest.raises(TypeError, match="dict"):
        twin |= {"a": torch.zeros(3)}


@pytest.mark.usefixtures("_nothing_is_small")
def test_counters_and_large_models_are_no_vector():
    counted = {"a": torch.ones(3), "count": torch.tensor(1)}
    large = {"a": torch.ones(2**21)}
    assert flat(counted) is counted
    assert flat(large) is large
