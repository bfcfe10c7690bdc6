"""One bit flipped in what stands beside ledger and states: no other thing is read."""

import pytest
import safetensors.torch
import torch

from covey import RiskEstimate, RunError, load
from covey.base.figure import Figure
from covey.data.source import DataProfile
from covey.runs.folder import FederationMetadata, RunFolder
from covey.settings.load import that_matter
from covey_flower.memory import MemoryFolder, NodeMemory
from runs.flips import changed_silently


@pytest.mark.slow
def test_no_flip_in_the_settings_is_silent(play):
    played = play()
    folder = RunFolder(played.folder)

    def told() -> object:
        return that_matter(folder.config()), load(played.folder).ledger_head

    assert not changed_silently(folder.config_path, told)


def test_no_flip_in_what_is_known_of_a_federation_is_silent(tmp_path):
    folder = RunFolder(tmp_path)
    profile = DataProfile((4,), images=False, classes=2)
    FederationMetadata("run", profile, "/home").write(folder)
    path = tmp_path / "federation.json"
    assert not changed_silently(path, lambda: FederationMetadata.of(folder))


def test_no_flip_in_a_queued_request_names_another_client(tmp_path):
    folder = RunFolder(tmp_path)
    folder.queue_request("client-00001", "retrain", "erasure")
    (path,) = folder.request_queue.iterdir()

    def client() -> list[str]:
        return [each.client for each in folder.queued_requests()]

    assert not changed_silently(path, client)


def test_no_flip_in_what_a_node_keeps_is_silent(tmp_path):
    memory = MemoryFolder(tmp_path, "run")
    memory.write(NodeMemory((None, RiskEstimate(Figure(0.5, 0.1), round_index=1)), 2, 0.5))
    assert not changed_silently(tmp_path / "run.json", memory.read)
    memory.write_tensors(2, {"own": {"w": torch.rand(3, 2), "b": torch.rand(2)}})

    def tensors() -> object:
        return {
            (key, name): value.tolist()
            for key, params in memory.read_tensors(2).items()
            for name, value in params.items()
        }

    assert not changed_silently(tmp_path / "run" / "2.safetensors", tensors)


def test_what_holds_no_checksum_is_not_read(tmp_path):
    path = tmp_path / "federation.json"
    path.write_text('{"run": "run", "profile": null, "home": "/home"}')
    with pytest.raises(RunError, match="it has no checksum"):
        FederationMetadata.of(RunFolder(tmp_path))
    memory = MemoryFolder(tmp_path, "run")
    memory.write_tensors(2, {"own": {"w": torch.ones(2)}})
    bare = safetensors.torch.save({"own/w": torch.ones(2)})
    (tmp_path / "run" / "2.safetensors").write_bytes(bare)
    with pytest.raises(RunError, match="its checksum is another"):
        memory.read_tensors(2)
