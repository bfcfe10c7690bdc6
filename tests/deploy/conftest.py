import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

# here, and not in a test: what it imports warns of others' deprecations
from flwr.common.config import parse_config_args

from covey_flower.deployment import DeploymentPlan, write_federation

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)

PROGRAMS = (
    "flower-superlink",
    "flower-supernode",
    "flower-superexec",
    "flwr-serverapp",
    "flwr-clientapp",
)

ECHO = """#!/usr/bin/env python3
import json, os, sys
print(json.dumps({"words": sys.argv[1:], "environment": dict(os.environ)}))
"""


@pytest.fixture
def now() -> datetime:
    return NOW


@pytest.fixture
def read_by_flower() -> Callable[[str], dict[str, Any]]:
    """What Flower makes of a --node-config."""
    return lambda words: parse_config_args([words])


@pytest.fixture
def federate(tmp_path) -> Callable[..., Path]:
    """Write the folder of a federation of alice and bob."""

    def made(text: str = "", host: str = "127.0.0.1", more: tuple[str, ...] = ()) -> Path:
        config = tmp_path / "config.toml"
        config.write_text(text, encoding="utf-8")
        plan = DeploymentPlan(("alice", "bob", *more), host, 8443)
        return write_federation(config, tmp_path / "a federation", plan, NOW)

    return made


@pytest.fixture
def programs(tmp_path, monkeypatch) -> Path:
    """A folder on the PATH in which Flower's programs only say how they were called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in (*PROGRAMS, "flwr"):
        (folder / name).write_text(ECHO)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder
