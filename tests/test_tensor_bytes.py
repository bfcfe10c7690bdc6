import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from covey.base import params as tensor_bytes
from covey.base.params import model_hash, safetensors_pieces

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
    found = values.to(draw(st.sampled_from(DTYPES)))
    return found.transpose(0, -1) if shape and draw(st.booleans()) else found


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_small():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor_bytes, "SMALL", -1)
        yield


@settings(max_examples=100)
@given(
    st.dictionaries(NAMES, tensors(), max_size=6),
    st.one_of(st.none(), st.text(max_size=9).map(lambda text: {"covey": text})),
)
def test_the_pieces_are_the_file(found: dict[str, Tensor], metadata: dict[str, str] | None):
    apart = {name: value.contiguous() for name, value in found.items()}
    whole = safetensors.torch.save(apart, metadata)
    assert b"".join(safetensors_pieces(found, metadata)) == whole


def test_models_that_share_memory_have_the_hash_of_equal_models_that_do_not(
    monkeypatch: pytest.MonkeyPatch,
):
    weights = torch.randn(8, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    lying = weights.contiguous(memory_format=torch.channels_last)
    shared = model_hash([{"w": lying}, {"w": lying, "n": torch.tensor(3)}])
    monkeypatch.setattr(tensor_bytes, "SMALL", 2**20)
    apart = [{"w": weights}, {"w": weights.clone(), "n": torch.tensor(3)}]
    assert shared == model_hash(apart)
