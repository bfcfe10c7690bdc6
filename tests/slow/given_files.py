"""Readers of settings and of data that others made."""

import gzip
import io
import json
import pickle
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tomli_w
from PIL import Image

from covey import Config, load_config
from covey.data.arrays import read_client
from covey.data.formats import (
    parse_attributes,
    parse_batch,
    parse_idx,
    parse_image,
    parse_leaf,
    parse_names,
    parse_patients,
)
from covey.data.population import read_preferences
from covey_flower.node_file import NodeFile
from slow.mutations import of_json, of_toml
from slow.reading import Reader, written


def settings_readers(folder: Path) -> Iterator[tuple[str, Reader]]:
    path = folder / "settings.toml"
    honest = Config.of({"rounds": 2}).toml().encode()
    yield "settings", Reader(path, honest, lambda: load_config(path), of_toml)
    node = folder / "node.toml"
    settings = {"name": "a", "seed": 3, "risk_threshold": 0.6, "data": "x.npz"}
    honest = tomli_w.dumps(settings).encode()
    yield "node.toml", Reader(node, honest, lambda: NodeFile.read(node), of_toml)
    table = folder / "preferences.csv"
    honest = b"name, risk_threshold, risk_weight\nsite-1, 0.6, 0.5\nsite-2, 0.7,\n"
    yield "preferences.csv", Reader(table, honest, lambda: read_preferences(table))


def _npz() -> bytes:
    written = io.BytesIO()
    np.savez_compressed(written, x=np.ones((3, 4), np.float32), y=np.arange(3))
    return written.getvalue()


def data_readers(folder: Path) -> Iterator[tuple[str, Reader]]:
    npz = folder / "client.npz"
    yield "npz", Reader(npz, _npz(), lambda: read_client(npz))
    table = folder / "client.csv"
    honest = b"age,chol,label\n63,233.5,1\n41,204,0\n"
    yield "tables", Reader(table, honest, lambda: read_client(table))
    patients = folder / "processed.cleveland.data"
    honest = b"63,1,1,145,233,1,2,150,0,2.3,3,0,6,0\n67,1,4,160,286,0,2,108,1,1.5,2,3,?,2\n"
    yield (
        "patients",
        Reader(patients, honest, lambda: parse_patients(patients.read_bytes(), patients)),
    )
    idx = folder / "images.idx"
    honest = bytes([0, 0, 8, 3]) + struct.pack(">3I", 2, 3, 3) + bytes(18)

    def parsed() -> object:
        return parse_idx(idx.read_bytes(), idx, dimensions=3)

    yield "idx", Reader(idx, gzip.compress(honest, mtime=0), parsed)
    leaf = folder / "leaf" / "train" / "all.json"
    user = {"x": [[0.5] * 784], "y": [3]}
    leaf_file = {"users": ["a"], "num_samples": [1], "user_data": {"a": user}}
    honest = written(leaf, json.dumps(leaf_file).encode())
    yield ("LEAF", Reader(leaf, honest, lambda: parse_leaf(leaf.read_bytes(), leaf), of_json))
    batch = folder / "data_batch_1"
    content = {b"data": np.zeros((2, 3072), np.uint8), b"labels": [3, 9]}

    def unpickled() -> object:
        return parse_batch(batch.read_bytes(), batch)

    yield "CIFAR", Reader(batch, pickle.dumps(content, protocol=4), unpickled)
    yield from _faces(folder)


def _faces(folder: Path) -> Iterator[tuple[str, Reader]]:
    path = folder / "celeba"
    written = io.BytesIO()
    Image.new("RGB", (20, 24), "red").save(written, "JPEG")
    rows = b"1.jpg 0\n2.jpg 2\n"
    labels = b"1\nname\n1.jpg " + b" ".join([b"-1", b"1"] * 20) + b"\n"
    for name, honest, parse in (
        ("CelebA's parts", rows, lambda c: parse_names(c, path, "train")),
        ("CelebA's labels", labels, lambda c: parse_attributes(c, path, ["1.jpg"])),
        ("CelebA's images", written.getvalue(), lambda c: parse_image(c, path)),
    ):
        yield name, Reader(path, honest, lambda p=parse: p(path.read_bytes()))
