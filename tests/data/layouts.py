"""Small files in the layouts of the publishers."""

import gzip
import io
import json
import struct

import numpy as np
from PIL import Image

from covey import DataSet, PublishedData
from covey.base.components import create


def read_source(name, folder) -> PublishedData:
    """Read a data set by its `data.name`."""
    return create("data", name, "data.name", DataSet).read(folder)


def write_idx(path, values):
    header = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    content = header + values.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


PAPER = 1.0


def written(*labels, ink=()):
    """One writer's images: paper, with one pixel of ink in each."""
    images = np.full((len(labels), 784), PAPER)
    for image, (pixel, value) in enumerate(ink):
        images[image, pixel] = value
    return {"x": images.tolist(), "y": list(labels)}


def write_leaf(path, **users):
    """Write a file of LEAF's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = {
        "users": list(users),
        "num_samples": [len(user["y"]) for user in users.values()],
        "user_data": users,
    }
    path.write_text(json.dumps(part), encoding="utf-8")


PARTS = {"000001.jpg": 0, "000002.jpg": 1, "000003.jpg": 0, "000004.jpg": 2}


def face():
    """178 x 218, red above and below the middle square: black left, green right."""
    pixels = np.zeros((218, 178, 3), dtype=np.uint8)
    pixels[:, 89:, 1] = 255
    pixels[:20] = pixels[198:] = (255, 0, 0)
    return pixels


def encoded(pixels, kind="JPEG"):
    stored = io.BytesIO()
    Image.fromarray(pixels).save(stored, kind)
    return stored.getvalue()


def write_celeba(folder, parts=PARTS):
    """Image number i has attribute i - 1 only."""
    images = folder / "img_align_celeba"
    images.mkdir(parents=True, exist_ok=True)
    for name in parts:
        (images / name).write_bytes(encoded(face()))
    rows = {
        name: ["1" if k == number else "-1" for k in range(40)] for number, name in enumerate(parts)
    }
    (folder / "list_attr_celeba.txt").write_text(
        f"{len(parts)}\n{' '.join(f'Attribute_{k}' for k in range(40))} \n"
        + "".join(f"{name}  {'  '.join(row)}\n" for name, row in rows.items())
    )
    (folder / "list_eval_partition.txt").write_text(
        "".join(f"{name} {part}\n" for name, part in parts.items())
    )
