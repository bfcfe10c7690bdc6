"""Several inputs of a model: packed into one tensor where they come in, whole at the call."""

import copy
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, vmap

from covey import DataError, Examples
from covey.data.arrays import examples_of
from covey.data.examples import Layout

IDS = torch.tensor([[3, 1, 0], [2, 2, 2]])
MASK = torch.tensor([[True, True, False], [True, True, True]])
AGE = torch.tensor([0.1, -7.25])
LABELS = torch.tensor([0, 1])
NAMED = {"mask": MASK, "ids": IDS, "age": AGE}


class Called(nn.Module):
    """What it was called with last."""

    def forward(self, *args: torch.Tensor, **kwargs: torch.Tensor) -> torch.Tensor:
        self.args, self.kwargs = args, kwargs
        return torch.zeros(1)


def called(examples: Examples) -> Called:
    assert examples.layout is not None
    module = Called()
    module.register_forward_pre_hook(examples.layout, with_kwargs=True)
    module(examples.inputs)
    return module


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one, other)


def assert_named(examples: Examples) -> None:
    module = called(examples)
    assert module.args == ()
    assert module.kwargs.keys() == NAMED.keys()
    assert all(same(module.kwargs[name], NAMED[name]) for name in NAMED)
    assert torch.equal(examples.labels, LABELS)


def items_of_keywords() -> list[object]:
    return [({name: values[i] for name, values in NAMED.items()}, int(LABELS[i])) for i in range(2)]


@pytest.mark.parametrize(
    "data",
    [
        (NAMED, LABELS),
        ({name: values.numpy() for name, values in NAMED.items()}, LABELS.numpy()),
        items_of_keywords(),
    ],
    ids=["pair", "numpy", "items"],
)
def test_a_model_is_called_by_keyword_with_every_form_of_a_dict(data):
    assert_named(examples_of("c", data))


def test_a_model_is_called_by_position_with_a_tuple():
    items = [((IDS[i], AGE[i : i + 1]), 1) for i in range(2)]
    for data in (((IDS, AGE[:, None]), LABELS), items):
        module = called(examples_of("c", data))
        assert module.kwargs == {}
        assert same(module.args[0], IDS)
        assert same(module.args[1], AGE[:, None])


@given(
    st.lists(
        st.tuples(st.integers(-(2**53), 2**53), st.floats(width=32, allow_nan=False)), min_size=1
    )
)
def test_every_number_comes_back_bit_for_bit(rows):
    ids, values = (list(row) for row in zip(*rows, strict=True))
    data = {"ids": torch.tensor(ids), "values": torch.tensor(values, dtype=torch.float32)}
    if not data["values"].isfinite().all():
        return
    call = called(examples_of("c", (data, torch.zeros(len(rows), dtype=torch.int64))))
    assert same(call.kwargs["ids"], data["ids"])
    assert call.kwargs["values"].numpy().tobytes() == data["values"].numpy().tobytes()


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"ids": IDS + 2**53}, "within 2.53, found"),
        ({"ids": IDS, "age": AGE[:1]}, "as many of every input"),
        ({"ids": IDS, "age": AGE * torch.nan}, "must be finite"),
    ],
)
def test_what_cannot_be_kept_is_refused(inputs, message):
    with pytest.raises(DataError, match=message):
        examples_of("c", (inputs, LABELS))


class Weighed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(4, 2)

    def forward(self, *, ids: torch.Tensor, mask: torch.Tensor, age: torch.Tensor) -> torch.Tensor:
        return (self.embedding(ids) * mask[..., None]).sum(dim=1) * age[:, None]


def test_the_hook_keeps_the_names_of_parameters_and_survives_copies_and_transforms():
    examples = examples_of("c", (NAMED, LABELS))
    layout = examples.layout
    assert isinstance(layout, Layout)
    module = Weighed()
    expected = module(**NAMED)
    module.register_forward_pre_hook(layout, with_kwargs=True)
    assert list(module.state_dict()) == ["embedding.weight"]
    for network in (module, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):  # noqa: S301
        assert torch.equal(network(examples.inputs), expected)
    weights = {"embedding.weight": module.embedding.weight.detach().expand(3, 4, 2)}
    together = vmap(lambda w: functional_call(module, w, (examples.inputs,)))(weights)
    torch.testing.assert_close(together, expected.detach().expand(3, 2, 2))
