"""Files that unpack to far more than they are, or that are no files: refused unread."""

import gzip
import io
import os
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from covey import ConfigError, DataError
from covey.base.files import read_bounded
from covey.data import arrays as npz
from covey.data.arrays import read_client
from covey.data.formats import gunzip
from covey.data.population import read_preferences

MIB = 2**20


def peak_of(action) -> int:
    """Return the most bytes that Python held during an action."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def npz_of(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


def header(shape: tuple[int, ...], dtype: str) -> bytes:
    written = io.BytesIO()
    fields = {"shape": shape, "fortran_order": False, "descr": dtype}
    np.lib.format.write_array_header_1_0(written, fields)
    return written.getvalue()


def test_an_archive_that_unpacks_to_a_thousand_times_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "ALWAYS_ALLOWED", 8 * MIB)
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("x.npy", "w", force_zip64=True) as member:
            member.write(header((64, MIB), "|u1"))
            for _ in range(64):
                member.write(bytes(MIB))
        archive.writestr("y.npy", header((0,), "<i8"))
    assert path.stat().st_size < MIB // 8

    def read() -> None:
        with pytest.raises(DataError, match=r"bomb\.npz.*unpacks to more"):
            read_client(path)

    assert peak_of(read) < 4 * MIB


def test_a_header_that_announces_more_than_there_is(tmp_path):
    liar = header((10**12, 10), "<f4")
    path = npz_of(tmp_path / "liar.npz", x=liar, y=liar)

    def read() -> None:
        with pytest.raises(DataError, match="more numbers than bytes"):
            read_client(path)

    assert peak_of(read) < 16 * MIB


def test_a_gzip_file_is_unpacked_as_far_as_allowed():
    packed = gzip.compress(bytes(8 * MIB))
    assert gunzip(packed, 8 * MIB) == bytes(8 * MIB)

    def unpack() -> None:
        with pytest.raises(ValueError, match="more than"):
            gunzip(packed, MIB)

    assert peak_of(unpack) < 3 * MIB


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_no_file(tmp_path):
    pipe = tmp_path / "pipe.npz"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="regular file"):
        read_bounded(pipe)
    with pytest.raises(DataError, match="regular file"):
        read_client(pipe)
    with pytest.raises(ConfigError, match="regular file"):
        read_preferences(pipe)
