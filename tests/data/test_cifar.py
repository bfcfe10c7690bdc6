import pickle
from pathlib import Path

import numpy as np
import pytest

from covey import DataError
from covey.data.formats import parse_batch

PATH = Path("data_batch_9")
PIXELS = np.arange(2 * 3072, dtype=np.uint8).reshape(2, 3072)


def batch(data: np.ndarray = PIXELS, labels=(3, 9)):
    content = {b"data": data, b"labels": list(labels)}
    return pickle.dumps(content, protocol=4)


def test_rows_become_images_of_three_colour_planes():
    examples = parse_batch(batch(), PATH)
    assert examples.inputs.shape == (2, 3, 32, 32)
    assert examples.inputs[1, 2, 0, 5] == PIXELS[1, 2 * 1024 + 5]
    assert examples.labels.tolist() == [3, 9]


class RunsACommand:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return (Path.touch, (self.marker,))


def test_a_malicious_pickle_is_refused_and_not_run(tmp_path):
    marker = tmp_path / "was run"
    content = pickle.dumps({b"data": RunsACommand(marker)}, protocol=2)
    with pytest.raises(DataError, match=r"data_batch_9 .* asks for ") as caught:
        parse_batch(content, PATH)
    assert "not run" in str(caught.value)
    assert not marker.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"no pickle at all",
        batch()[:-100],
        pickle.dumps({b"labels": [1]}),
        batch(labels=[1, 10]),
        batch(data=PIXELS.astype(np.int32)),
        batch(data=np.asfortranarray(PIXELS)),
    ],
)
def test_what_is_no_batch_is_refused_by_name(content):
    with pytest.raises(DataError, match="data_batch_9 must be a CIFAR-10 python batch"):
        parse_batch(content, PATH)
