"""What clients choose their clusters by, as tests make it."""

import math
from typing import Any

import torch

from covey import SelectionInputs, Streams
from covey.algorithms.selection import UNASSIGNED


def choosing(losses: Any, **known: Any) -> SelectionInputs:
    """Return clients that never chose and know no risk, with all on offer, unless told so."""
    losses = torch.as_tensor(losses, dtype=torch.float32)
    clients, clusters = losses.shape
    usual = {
        "risks": torch.full((clients, clusters), math.nan),
        "risk_errors": torch.zeros(clients, clusters),
        "risk_weights": torch.full((clients,), 0.5),
        "risk_thresholds": torch.full((clients,), 0.7),
        "available": torch.ones(clusters, dtype=torch.bool),
        "current": torch.full((clients,), UNASSIGNED),
        "absent_counts": torch.zeros(clusters, dtype=torch.int64),
        "states": {},
        "streams": Streams(0),
    }
    return SelectionInputs(losses=losses, **{**usual, **known})
