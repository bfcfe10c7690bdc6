"""The engine of a federation on Flower, `engine.name = "flower"`, and the settings it shares."""

import hashlib
import json
from typing import ClassVar

from torch import nn

from covey import Config, Engine, EngineFactory, Task
from covey.base.components import Count
from covey.engine.kinds import Parallel

SHARED_SETTINGS = ("data", "model", "train", "method", "aggregation", "risk", "privacy")
"""Sections of the settings that the server and every node must have alike."""


class FlowerNodes(EngineFactory):
    """Clients on machines of their own (`docs/guides/flower.md`), who keep their examples there.

    Attributes:
        workers: threads on each node; 0: one per core. Changes no result.
    """

    is_remote: ClassVar[bool] = True

    workers: Count = 0

    def build(self, module: nn.Module, task: Task, *, per_client: bool = False) -> Engine:
        """Return the engine of one node, or of the server for its own measurements."""
        return Parallel(workers=self.workers).build(module, task, per_client=per_client)


def shared_settings_hash(config: Config) -> str:
    """Return a hash of the settings that a server and its nodes must share."""
    settings = config.model_dump(mode="json", include=set(SHARED_SETTINGS))
    settings["data"].pop("dir")
    settings["aggregation"].pop("deniability_threshold", None)  # judges requests, not training
    settings["secrets"] = config.secrets.source  # the account rests on it
    text = json.dumps(settings, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
