"""Federations over TLS, of real processes: what they end in, survive and forget."""

import os
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest
import tomli_w
import torch

import covey
from covey import Run, load, load_config
from covey.base.events import AnswersMissing, ClientLeft, CohortSampled
from covey.ledger.store import Ledger
from covey.runs.folder import RunFolder
from flower.conftest import all_of, events_of, same_risks
from flower.deployment import Deployment, Submitted, free_ports, invited, until

pytestmark = pytest.mark.slow

CONFIG = """
rounds = 2
[model]
name = "mlp"
[train]
local_epochs = 5
optimizer.momentum = 0.9
[method]
name = "ifca-mir"
initialisation = "warm"
selection = "weighted"
[aggregation]
name = "anonymity-sets"
min_anonymity = 2
deniability_threshold = 1
[risk]
name = "federated"
every = 2
[secrets]
source = "seeded"
"""

LONG = 600.0  # seconds that a whole run may take on a busy machine


def names(count: int) -> list[str]:
    """The names of simulated clients."""
    return [f"client-{index:05}" for index in range(count)]


def as_simulated(folder: Path, count: int, config: str, records: Path) -> Path:
    """A federation whose nodes have the records and the seed that they have in its simulation."""
    held = folder / "records"
    held.mkdir()
    for name in names(count):
        (held / f"{name}.npz").symlink_to(records / f"{name}.npz")
    source = f'[data]\nname = "npz"\ndir = "{held}"\n'
    federation = invited(folder, config + source, names(count))
    for name in names(count):
        file = {"name": name, "seed": 0, "data": str(held / f"{name}.npz")}
        (federation / "nodes" / name / "node.toml").write_text(tomli_w.dumps(file))
    return federation


@pytest.fixture(autouse=True)
def private_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place for secrets and signing keys."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))


def first_head(run: Path) -> str | None:
    """The hash of a ledger after its first round."""
    folder = RunFolder(run)
    with Ledger.read(folder.ledger) as ledger:
        record = folder.reader.read(ledger)
        return record.head_of(0)


def same(federated: Run, here: Run) -> None:
    """Fail unless the models of two runs are the same."""
    for j in range(len(here.summary.clusters)):
        for name, value in here.params(j).items():
            torch.testing.assert_close(federated.params(j)[name], value, rtol=0, atol=1e-6)


def ended(submitted: Submitted) -> str:
    said = submitted.wait(LONG)
    assert submitted.process.returncode == 0, said
    return said


def test_a_deployment_whose_server_was_killed_ends_where_its_simulation_does(tmp_path, own_data):
    folder = as_simulated(tmp_path, 5, CONFIG, own_data)
    run = folder / "runs" / "federation"
    with Deployment(folder) as deployment:
        deployment.submit().wait_for("round 1/", LONG)
        deployment.kill_superlink()
        assert deployment.online() == frozenset()
        assert load(run).history.finished is None
        before = first_head(run)
        for name in deployment.names:
            deployment.kill_node(name)  # else it would end by itself, some time
        deployment.restart_superlink()
        for name in deployment.names:
            deployment.start_node(name)
        deployment.wait_online(*deployment.names)
        assert deployment.online() == {*names(5)}
        ended(deployment.covey("resume", run))
    assert deployment.running() == []
    assert before is not None
    assert first_head(run) == before  # nothing was written again
    config = load_config(folder / "covey.toml", ["engine.name=parallel"])
    federated, here = load(run), covey.run(config=config, out=tmp_path / "simulated")
    assert [r.round_index for r in federated.history.rounds] == list(range(2))
    assert federated.history.finished is not None
    assert sorted(c.clients for c in here.summary.clusters) == [2, 3]
    assert federated.history.assignment == here.history.assignment
    assert [r.clients for r in federated.history.rounds] == [r.clients for r in here.history.rounds]
    same_risks(federated, here)
    same(federated, here)


HELD_MODEL = """
import os
from pathlib import Path

from torch import nn


def linear():
    hold = Path(os.environ["FLWR_HOME"]).parent / "hold"  # each node has its own
    if hold.exists():
        hold.read_bytes()
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
"""
SHRINKING = """
rounds = 5
[model]
name = "held_model:linear"
[method]
name = "fedavg"
[aggregation]
name = "anonymity-sets"
min_anonymity = 2
deniability_threshold = 1
[risk]
name = "none"
"""
*_, LEAVER, VICTIM = names(4)


def leave(node: Path) -> None:
    """Let a node's file say that it leaves, at once for whoever reads it."""
    file, new = node / "node.toml", node / "node.unfinished"
    new.write_text(tomli_w.dumps({**tomllib.loads(file.read_text()), "leave": True}))
    new.replace(file)


def open_if_read(pipe: Path) -> int:
    """Open a pipe for writing; 0 as long as nobody has opened it for reading."""
    with suppress(OSError):
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    return 0


def test_a_killed_node_is_missed_alone_and_who_has_left_is_never_asked_again(
    tmp_path, own_data, monkeypatch
):
    """One node is killed while it answers, and then one asks to leave."""
    (tmp_path / "held_model.py").write_text(HELD_MODEL)
    known = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(known))
    monkeypatch.syspath_prepend(tmp_path)
    folder = as_simulated(tmp_path, 4, SHRINKING, own_data)
    pipe = folder / "nodes" / VICTIM / "hold"
    with Deployment(folder) as deployment:
        begun = deployment.submit(None, "--run-config", "timeout=60")
        begun.wait_for("round 1/", LONG)
        os.mkfifo(pipe)
        held = until(lambda: open_if_read(pipe), "the node makes its model")
        deployment.kill_node(VICTIM)
        os.close(held)
        leave(folder / "nodes" / LEAVER)
        said = begun.wait(LONG)
        received = deployment.log(LEAVER).count("Received successfully")
    assert deployment.running() == []
    result = load(folder / "runs" / "federation")
    assert result.history.finished is not None, said
    assert {e.handles for e in all_of(AnswersMissing, result)} == {(result.names[VICTIM],)}
    assert [r.round_index for r in result.history.rounds] == list(range(5))
    assert all(r.participants >= 2 for r in result.history.rounds)
    (proof,) = (result.folder / "proofs").glob("*.json")
    assert covey.verify(proof, result.folder).failed == ()
    assert LEAVER not in result.names
    events = events_of(result)
    (left,) = all_of(ClientLeft, result)
    place = events.index(left)
    cohorts = [
        (at, event.handles) for at, event in enumerate(events) if isinstance(event, CohortSampled)
    ]
    before = sum(left.handle in handles for at, handles in cohorts if at < place)
    assert 2 <= before < 5
    assert all(left.handle not in handles for at, handles in cohorts if at > place)
    assert received == 1 + before  # who it is, and every round until then


IN_A_SIMULATION = """
rounds = 2
[model]
name = "linear"
[method]
name = "fedavg"
[risk]
name = "none"
"""
PORTS = ("FLWR_LOCAL_SUPERLINK_HTTP_API_PORT", "FLWR_LOCAL_CONTROL_API_PORT")


def test_flowers_own_simulation_plays_a_federation_too(tmp_path, own_data, monkeypatch):
    for key, port in zip(PORTS, free_ports(len(PORTS)), strict=True):
        monkeypatch.setenv(key, str(port))
    folder = as_simulated(tmp_path, 3, IN_A_SIMULATION, own_data)
    connection = {"covey": {"address": ":local-in-memory:"}}
    (folder / "flwr" / "config.toml").write_text(tomli_w.dumps({"superlink": connection}))
    project = folder / "app" / "pyproject.toml"
    project_settings = tomllib.loads(project.read_text())
    nodes = folder / "nodes" / "client-{partition-id:05}" / "node.toml"
    project_settings["tool"]["flwr"]["app"]["config"]["file"] = str(nodes)
    project.write_text(tomli_w.dumps(project_settings))
    simulated = Deployment(folder)
    try:
        resources = "num-supernodes=3 client-resources-num-cpus=1"
        said = simulated.submit(None, "--federation-config", resources).wait(LONG)
    finally:
        simulated.end()
    assert simulated.running() == []
    federated = load(folder / "runs" / "federation")
    assert federated.history.finished is not None, said
    assert [r.participants for r in federated.history.rounds] == [3, 3]
    config = load_config(folder / "covey.toml", ["engine.name=parallel"])
    same(federated, covey.run(config=config, out=tmp_path / "simulated"))
