"""A model as a file: safetensors of its state dict, with a header that says where it is from."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from covey.base.files import check_regular
from covey.base.names import Params, __version__

HEADER = "covey"
"""The one key of the header: safetensors writes several in an order that changes."""


def model_bytes(params: Params, header: Mapping[str, str] | None = None) -> bytes:
    """Return a model as it is exported; equal arguments give equal bytes."""
    from safetensors.torch import save  # torch takes seconds to import

    tensors = {name: tensor.detach().cpu().clone() for name, tensor in params.items()}
    return save(tensors, dict(header) if header else None)


def hash_of_model(params: Params) -> str:
    """Return SHA-256 of a model's safetensors bytes without a header."""
    return hashlib.sha256(model_bytes(params)).hexdigest()


def exported_hashes(models: Iterable[Params]) -> frozenset[str]:
    """Return the hash of each model, whatever the headers of its files say."""
    return frozenset(map(hash_of_model, models))


def hash_inside(path: Path) -> str:
    """Return the hash of the model in a file; "": the file holds none."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        check_regular(path)
        return hash_of_model(load_file(path))
    except (SafetensorError, OSError, ValueError):
        return ""


def header_of(run: str, rounds: int, cluster: int, model_hash: str) -> dict[str, str]:
    """Return what a file says of its model: no name, no path and no client.

    Args:
        run: the hash of the first event in its ledger.
        rounds: how many the model has seen.
        cluster: its number.
        model_hash: of the same model without a header.
    """
    facts = {
        "covey_version": __version__,
        "run": run,
        "rounds": rounds,
        "cluster": cluster,
        "model_hash": model_hash,
    }
    return {HEADER: json.dumps(facts)}
