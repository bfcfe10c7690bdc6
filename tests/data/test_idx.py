import gzip
import struct
from pathlib import Path

import pytest

from covey import DataError
from covey.data.formats import parse_idx

PATH = Path("some-images-idx3-ubyte.gz")
IMAGES = b"\0\0\x08\x03" + struct.pack(">3I", 2, 2, 1) + bytes([1, 2, 3, 4])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "found nothing"),
        (b"\0\0\x0d\x03" + IMAGES[4:], "found 00000d03"),
        (IMAGES[:8], "must have a whole header"),
        (IMAGES[:-1], "2 x 2 x 1 bytes after its header, found 3"),
        (IMAGES + b"\0", "2 x 2 x 1 bytes after its header, found 5"),
        (gzip.compress(IMAGES, mtime=0)[:-9], "must be whole gzip"),
        (b"\x1f\x8b and no more", "must be whole gzip"),
    ],
)
def test_a_corrupt_file_is_refused_by_name(content, message):
    with pytest.raises(DataError, match=message) as caught:
        parse_idx(content, PATH, dimensions=3)
    assert str(PATH) in str(caught.value)


@pytest.mark.parametrize("length", range(len(IMAGES)))
def test_no_truncation_goes_unnoticed(length):
    with pytest.raises(DataError):
        parse_idx(IMAGES[:length], PATH, dimensions=3)
