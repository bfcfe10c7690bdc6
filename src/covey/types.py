"""The words that every module speaks."""

from collections.abc import Mapping
from typing import Literal

from torch import Tensor

__all__ = ["BASES", "Basis", "ClientName", "Handle", "Params"]

ClientName = str
"""What people call a client: `client-00017`, or the stem of its file."""

Handle = str
"""A client's random pseudonym: the only identity that events and reports show."""

Params = Mapping[str, Tensor]
"""One model's state: parameters and buffers by name, as in `Module.state_dict()`.

Treated as a value: nothing may write into its tensors.
"""

Basis = Literal["erasure", "withdrawal", "restriction", "none"]
"""What a request to leave rests on: it bounds the answers that may be given."""

BASES: tuple[Basis, ...] = ("erasure", "withdrawal", "restriction", "none")
