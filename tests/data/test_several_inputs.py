"""Several inputs of a model: packed into one tensor where they come in, whole at the call."""

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, vmap

from covey import DataError, Examples
from covey.data.arrays import client_data_of, examples_of
from covey.data.clients import clients_of
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
    return [({name: each[i] for name, each in NAMED.items()}, int(LABELS[i])) for i in range(2)]


@pytest.mark.parametrize(
    "data",
    [
        (NAMED, LABELS),
        (NAMED, [0, 1]),
        ({name: each.numpy() for name, each in NAMED.items()}, LABELS.numpy()),
        items_of_keywords(),
        examples_of("c", (NAMED, LABELS)),
    ],
    ids=["pair", "listed", "numpy", "items", "examples"],
)
def test_a_model_is_called_by_keyword_with_every_form_of_a_dict(data):
    assert_named(examples_of("c", data))


def test_columns_that_are_all_arrays_are_keywords_as_a_tokenizer_s():
    columns = {"ids": IDS, "mask": MASK.long(), "labels": LABELS}
    items = [{name: each[i] for name, each in columns.items()} for i in range(2)]
    for data in (columns, items):
        found = called(examples_of("c", data)).kwargs
        assert found.keys() == {"ids", "mask"}
        assert same(found["ids"], IDS)
        assert same(found["mask"], MASK.long())


def test_a_model_is_called_by_position_with_a_tuple():
    items = [((IDS[i], AGE[i : i + 1]), 1) for i in range(2)]
    for data in (((IDS, AGE[:, None]), LABELS), items):
        module = called(examples_of("c", data))
        assert module.kwargs == {}
        assert same(module.args[0], IDS)
        assert same(module.args[1], AGE[:, None])


def test_the_order_of_a_dict_does_not_matter():
    one, other = (examples_of("c", (d, LABELS)) for d in (NAMED, dict(reversed(NAMED.items()))))
    assert one.layout == other.layout
    assert torch.equal(one.inputs, other.inputs)


def test_images_are_scaled_and_their_channels_come_second():
    images = np.full((2, 4, 5, 3), 51, dtype=np.uint8)
    found = called(examples_of("c", ({"image": images, "age": AGE}, LABELS))).kwargs["image"]
    assert torch.equal(found, torch.full((2, 3, 4, 5), 0.2))


@given(
    st.lists(
        st.tuples(st.integers(-(2**53), 2**53), st.floats(width=32, allow_nan=False)), min_size=1
    )
)
def test_every_number_comes_back_bit_for_bit(rows):
    ids, values = (list(each) for each in zip(*rows, strict=True))
    data = {"ids": torch.tensor(ids), "values": torch.tensor(values, dtype=torch.float32)}
    if not data["values"].isfinite().all():
        return
    found = called(examples_of("c", (data, torch.zeros(len(rows), dtype=torch.int64))))
    assert same(found.kwargs["ids"], data["ids"])
    assert found.kwargs["values"].numpy().tobytes() == data["values"].numpy().tobytes()


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"ids": IDS + 2**53}, "within 2.53, found"),
        ({"ids": IDS - 2**54}, "within 2.53, found"),
        ({"ids": IDS, "age": AGE[:1]}, "as many examples of every input"),
        ({"ids": IDS, "age": AGE * torch.nan}, "must be finite"),
        ({"ids": IDS, "words": ["a", "b"]}, "must be numbers"),
        ({"ids": torch.tensor(1)}, "as many examples of every input"),
        ({}, "as many examples of every input"),
        ({"ids": IDS[:0], "age": AGE[:0]}, "as many labels"),
    ],
)
def test_what_cannot_be_kept_is_refused(inputs, message):
    with pytest.raises(DataError, match=message):
        examples_of("c", (inputs, LABELS))


def test_items_of_unlike_many_inputs_are_refused():
    items = [((IDS[0], AGE[:1]), 0), ((IDS[1], AGE[:1], AGE[:1]), 1)]
    with pytest.raises(DataError, match="must be numbers"):
        examples_of("c", items)
    with pytest.raises(DataError, match="item 1 must have 'age' like the first"):
        examples_of("c", [({"age": AGE, "ids": IDS}, 0), ({"ids": IDS}, 1)])


def test_clients_whose_inputs_have_other_names_or_shapes_are_refused():
    for other in ({"ids": IDS, "mask": MASK}, {**NAMED, "ids": IDS[:, :2]}, IDS.float()):
        with pytest.raises(DataError, match="All examples must be of one kind"):
            clients_of({"a": (NAMED, LABELS), "b": (other, LABELS)})


def test_train_and_test_are_kept_apart():
    halves = client_data_of("c", ((NAMED, LABELS), (NAMED, LABELS)))
    assert halves.test is not None
    assert halves.train.layout == halves.test.layout
    with pytest.raises(DataError, match="of one kind"):
        clients_of({"c": ((NAMED, LABELS), ({**NAMED, "age": IDS[:, 0]}, LABELS))})


def test_rows_stay_together_however_examples_are_chosen():
    examples = examples_of("c", (NAMED, LABELS))
    joined = Examples.joined([examples.first(1), examples.take(torch.tensor([1]))])
    assert_named(joined)


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
    for each in (module, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):  # noqa: S301
        assert torch.equal(each(examples.inputs), expected)
    weights = {"embedding.weight": module.embedding.weight.detach().expand(3, 4, 2)}
    together = vmap(lambda w: functional_call(module, w, (examples.inputs,)))(weights)
    torch.testing.assert_close(together, expected.detach().expand(3, 2, 2))
