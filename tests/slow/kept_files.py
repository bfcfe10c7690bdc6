"""Readers of what covey itself keeps."""

from collections.abc import Callable, Iterator
from pathlib import Path

import tomli_w
import torch
from pydantic import TypeAdapter

from covey import RiskEstimate, Streams, run, verify
from covey.base.figure import Figure
from covey.base.signature import key_records, signing_key
from covey.data.source import DataProfile
from covey.leaving.copies import copies_of
from covey.runs.folder import FederationMetadata, RunFolder, checkpoint_path
from covey.runs.reading import read_record
from covey.runs.secrets import secrets_of
from covey.runs.states import checkpoint_bytes, load_checkpoint, load_state
from covey_flower.deployment import Declaration, DeploymentPlan
from covey_flower.memory import MemoryFolder, NodeMemory
from slow.mutations import of_json, of_safetensors, of_toml
from slow.reading import Reader, reader_of, written

SMALL = {
    "rounds": 2,
    "population": {"clients": 8, "audit_examples": 20},
    "model": {"name": "mlp"},
    "method": {"initialisation": "random"},
}


def run_readers(folder: Path) -> Iterator[tuple[str, Reader]]:
    path = folder / "run"
    played = run(config=SMALL, out=path)
    played.forget("client-00003", answer="retrain", basis="erasure")
    played.export(0)
    home = RunFolder(path)
    (proof,) = home.proofs.glob("*.json")
    honest = proof.read_bytes()
    public = next(Path(folder / "config" / "covey").glob("*.pub.pem"))
    own = public.with_name("signing-key.pem")

    def checked(*more: Path) -> Callable[[], object]:
        def check() -> None:
            verification = verify(proof, *more, key=public)
            changed = proof.read_bytes() != honest
            assert not changed or not verification.valid

        return check

    yield "proofs", Reader(proof, honest, checked(), of_json)
    yield "proofs, with a ledger", Reader(proof, honest, checked(path), of_json)
    yield ("public keys", Reader(public, public.read_bytes(), lambda: key_records(public)))
    yield "signing key", Reader(own, own.read_bytes(), lambda: signing_key(own))
    yield "ledger", reader_of(home.ledger_path, lambda: read_record(home))
    yield "config.toml of a run", reader_of(home.config_path, home.config, of_toml)
    (record, *_) = home.copies.glob("*.json")
    yield "copies", reader_of(record, lambda: copies_of(home), of_json)
    home.queue_request("client-00001", "auto")
    (request_file,) = home.request_queue.glob("*.json")
    yield "requests", reader_of(request_file, lambda: list(home.queued_requests()), of_json)
    state = max(home.checkpoints.glob("*.safetensors"))
    yield "states", reader_of(state, lambda: load_state(state), of_safetensors)


def beside_readers(folder: Path) -> Iterator[tuple[str, Reader]]:
    home = RunFolder(folder / "other")
    home.path.mkdir()
    FederationMetadata("run", DataProfile((4,), images=False, classes=2), "/home").write(home)
    yield (
        "federation.json",
        reader_of(home.path / "federation.json", lambda: FederationMetadata.of(home), of_json),
    )
    streams, marker = Streams(1), home.secret_marker

    def used() -> None:
        own = secrets_of(streams, "os", marker)
        own.at_round(3)
        own.tombstone("a")
        own.forget_before(0)
        own.restart_at(1)

    secret = secrets_of(streams, "os", marker).path
    assert secret is not None
    yield "secrets", reader_of(secret, used, of_json)
    yield "which secret", reader_of(marker, used)
    memory = MemoryFolder(folder / "memory", "run")
    memory.write(NodeMemory((None, RiskEstimate(Figure(0.5, 0.1), round_index=1)), 2, 0.5))
    figures = folder / "memory" / "run.json"
    yield "a node's memory", reader_of(figures, memory.read, of_json)
    memory.write_tensors(2, {"own": {"w": torch.ones(2)}})
    yield (
        "a node's tensors",
        reader_of(
            folder / "memory" / "run" / "2.safetensors",
            lambda: memory.read_tensors(2),
            of_safetensors,
        ),
    )


def deployed_readers(folder: Path) -> Iterator[tuple[str, Reader]]:
    """What stands beside a run: its raw updates, and a deployment's own files."""
    updates = folder / "updates"
    updates.mkdir(parents=True, exist_ok=True)
    stored = checkpoint_path(updates, 1)
    stored.write_bytes(checkpoint_bytes(1, {"h-1/w": torch.ones(2)}, {}))
    yield "updates", reader_of(stored, lambda: load_checkpoint(stored), of_safetensors)
    declared = folder / "deploy.toml"
    said = TypeAdapter(Declaration).dump_python(
        Declaration(DeploymentPlan(("a", "b")), str(folder.absolute())), mode="json"
    )
    written(declared, tomli_w.dumps(said).encode())
    yield "deploy.toml", reader_of(declared, lambda: Declaration.read(folder), of_toml)
