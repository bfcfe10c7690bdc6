"""Federations over TLS, of real processes: what they end in, survive and forget."""

import json
import os
import re
import shutil
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import tomli_w
import torch

import covey
from covey import Run, load, load_config
from covey.base.events import AnswersMissing, ClientLeft, CohortSampled
from covey.ledger.store import Ledger
from covey.runtime.folder import RunFolder
from flower.conftest import all_of, same_risks, told
from flower.deployment import Deployment, Submitted, free_ports, invited, until

pytestmark = pytest.mark.slow

CONFIG = """
rounds = 5
[population]
clients = 6
minority_share = 0.34
examples_per_client = 200
risk_weight = 0.3
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
    """The names of simulated clients, whose nodes need no data of their own."""
    return [f"client-{index:05}" for index in range(count)]


def tell(node: Path, **more: object) -> None:
    """Let a node's file say something else, at once for whoever reads it."""
    file, new = node / "node.toml", node / "node.unfinished"
    new.write_text(tomli_w.dumps({**tomllib.loads(file.read_text()), **more}))
    new.replace(file)


def as_simulated(folder: Path, count: int, config: str) -> Path:
    """A federation whose nodes draw and accept what they do in its simulation."""
    federation = invited(folder, config, names(count))
    for name in names(count):
        node = federation / "nodes" / name / "node.toml"
        node.write_text(tomli_w.dumps({"name": name, "seed": 0}))
    return federation


@pytest.fixture(scope="module")
def private_home(tmp_path_factory):
    """A place for secrets and signing keys."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("home")))
        yield


SOLVED = """
rounds = 2
[population]
clients = 6
minority_share = 0.34
examples_per_client = 200
[model]
name = "linear-head"
features = { filters = 20, size = 3, pool = 2 }
[method]
name = "solved"
selection = "loss"
pooling = 0.3
[risk]
name = "none"
[secrets]
source = "seeded"
"""


@dataclass(frozen=True)
class Subtracted:
    """A run of solved heads, which one client left when it had ended.

    Attributes:
        model: hash of its heads before.
        said: what the server said when it was carried on.
    """

    model: str
    said: str
    result: Run


@dataclass(frozen=True)
class Cut:
    """A run whose server lost its power in the middle of round 3.

    Attributes:
        heads: of its ledger, round by round, before it was carried on.
        solved: another run, which the same nodes played.
    """

    folder: Path
    heads: list[str | None]
    result: Run
    solved: Subtracted


def heads(run: Path, rounds: int) -> list[str | None]:
    """The hashes of a ledger after its first rounds."""
    with Ledger.read(RunFolder(run).ledger) as ledger:
        ledger.verify()
        return [ledger.head_of(t) for t in range(rounds)]


def same(there: Run, here: Run) -> None:
    """Fail unless the models of two runs are the same."""
    for j in range(len(here.summary.clusters)):
        for name, value in here.params(j).items():
            torch.testing.assert_close(there.params(j)[name], value, rtol=0, atol=1e-6)


@pytest.fixture(scope="module")
def cut(tmp_path_factory, private_home):
    folder = as_simulated(tmp_path_factory.mktemp("cut"), 6, CONFIG)
    run = folder / "runs" / "federation"
    with Deployment(folder) as deployment:
        begun = deployment.submit()
        begun.wait_for("Round 3:", LONG)
        deployment.kill_superlink()
        assert load(run).history.finished is None
        before = heads(run, 5)
        for name in deployment.names:
            deployment.kill_node(name)  # else it would end by itself, some time
        deployment.restart_superlink()
        for name in deployment.names:
            deployment.start_node(name)
        deployment.wait_online(*deployment.names)
        resumed = deployment.covey("resume", run)
        said = resumed.wait(LONG)
        assert resumed.process.returncode == 0, said
        solved = solve_and_subtract(deployment, tmp_path_factory.mktemp("solved"))
    assert deployment.running() == []
    return Cut(folder, before, load(run), solved)


def solve_and_subtract(deployment: Deployment, place: Path) -> Subtracted:
    """Let the nodes play by other settings, and let one client leave."""
    other, settings = invited(place, SOLVED, names(6)), deployment.folder / "covey.toml"
    before = settings.read_text()
    for each in (".", *(f"nodes/{name}" for name in names(6))):
        shutil.copy(other / each / "covey.toml", deployment.folder / each)
    run = deployment.folder / "runs" / "solved"
    ended(deployment.covey("run", settings, "--out", run))
    model = load(run).summary.model_hash
    assert model is not None
    ended(deployment.covey("forget", run, names(6)[-1], "--answer", "subtract"))
    said = ended(deployment.covey("resume", run))
    settings.write_text(before)
    return Subtracted(model, said, load(run))


def ended(submitted: Submitted) -> str:
    said = submitted.wait(LONG)
    assert submitted.process.returncode == 0, said
    return said


def test_a_deployment_ends_where_its_simulation_does(cut, tmp_path):
    config = load_config(cut.folder / "covey.toml", ["engine.name=parallel"])
    there, here = cut.result, covey.run(config=config, out=tmp_path / "simulated")
    assert sorted(c.clients for c in here.summary.clusters) == [2, 4]
    assert there.history.assignment == here.history.assignment
    assert [r.clients for r in there.history.rounds] == [r.clients for r in here.history.rounds]
    same_risks(there, here)
    same(there, here)


def test_a_killed_server_goes_on_with_the_same_run_and_round_numbers(cut):
    played = [head for head in cut.heads if head is not None]
    assert len(played) == 3
    assert heads(cut.result.folder, 5)[:3] == played  # nothing was written again
    assert [r.round_index for r in cut.result.history.rounds] == list(range(5))
    assert [r.participants for r in cut.result.history.rounds] == [6] * 5
    assert cut.result.history.finished is not None


def test_solved_heads_are_those_of_their_simulation_and_so_are_those_without_a_client(
    cut, tmp_path
):
    (tmp_path / "solved.toml").write_text(SOLVED)
    here = covey.run(config=load_config(tmp_path / "solved.toml"), out=tmp_path / "simulated")
    assert cut.solved.model == here.summary.model_hash
    *_, leaver = names(6)
    here.forget(leaver, "subtract")
    there = cut.solved.result
    assert there.summary.model_hash == load(here.folder).summary.model_hash
    assert leaver not in there.names
    assert all_of(AnswersMissing, there) == []
    found = re.findall(r"proof (.+), salt .+: (\w+)$", cut.solved.said, re.M)
    ((proof, salt),) = found
    found = covey.verify(proof, there.folder, name_and_salt=(leaver, salt))
    assert found.failed == ()


MASKED = """
rounds = 1
[population]
clients = 4
examples_per_client = 100
[model]
name = "linear-head"
features = { filters = 20, size = 3, pool = 2 }
[method]
name = "solved"
num_clusters = 1
[risk]
name = "none"
[secrets]
source = "seeded"
"""


@pytest.mark.usefixtures("private_home")
def test_nodes_sign_and_send_sums_under_masks_that_are_those_of_the_simulation(tmp_path):
    federation = as_simulated(tmp_path, 4, MASKED)
    settings, run = federation / "covey.toml", federation / "runs" / "masked"
    with Deployment(federation) as deployment:
        ended(deployment.covey("run", settings, "--out", run))
        model = load(run).summary.model_hash
        tell(federation / "nodes" / LEAVER, leave=True)
        ended(deployment.covey("forget", run, LEAVER, "--answer", "subtract"))
        said = ended(deployment.covey("resume", run))
    here = covey.run(config=load_config(settings, ["engine.name=parallel"]), out=tmp_path / "here")
    assert model == here.summary.model_hash
    here.forget(LEAVER, "subtract")
    there = load(run)
    assert there.summary.model_hash == load(here.folder).summary.model_hash
    ((proof, salt),) = re.findall(r"proof (.+), salt .+: (\w+)$", said, re.M)
    found = covey.verify(proof, run, name_and_salt=(LEAVER, salt))
    assert found.failed == ()
    for name in names(4):
        (kept,) = (federation / "nodes" / name / "memory").glob("?*.sums.json")
        assert json.loads(kept.read_text())["opened"]


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
[population]
clients = 4
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


def read_by_nobody_else(pipe: Path) -> int:
    """Open a pipe for writing; 0 as long as nobody has opened it for reading."""
    with suppress(OSError):
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    return 0


@pytest.fixture(scope="module")
def shrunk(tmp_path_factory, private_home):
    """A run in which one node is killed while it answers, and then one asks to leave."""
    place = tmp_path_factory.mktemp("shrunk")
    (place / "held_model.py").write_text(HELD_MODEL)
    known = [str(place), *filter(None, [os.environ.get("PYTHONPATH")])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(known))
        patch.syspath_prepend(place)
        yield shrink(invited(place, SHRINKING, names(4)))


def shrink(folder: Path) -> tuple[Run, int]:
    victim, leaver = (folder / "nodes" / name for name in (VICTIM, LEAVER))
    with Deployment(folder) as deployment:
        begun = deployment.submit(None, "--run-config", "timeout=60")
        begun.wait_for("Round 1:", LONG)
        os.mkfifo(victim / "hold")
        pipe = until(lambda: read_by_nobody_else(victim / "hold"), "the node makes its model")
        deployment.kill_node(VICTIM)
        os.close(pipe)
        tell(leaver, leave=True)
        said = begun.wait(LONG)
        received = deployment.log(LEAVER).count("Received successfully")
    assert deployment.running() == []
    result = load(folder / "runs" / "federation")
    assert result.history.finished is not None, said
    return result, received


def test_a_killed_node_is_missed_alone_and_the_run_ends(shrunk):
    result, _ = shrunk
    victim = result.names[VICTIM]
    missed = all_of(AnswersMissing, result)
    assert missed
    assert {each.handles for each in missed} == {(victim,)}
    assert [r.round_index for r in result.history.rounds] == list(range(5))
    assert all(r.participants >= 2 for r in result.history.rounds)


def test_a_node_leaves_by_its_file_and_its_proof_holds(shrunk):
    result, _ = shrunk
    (proof,) = (result.folder / "proofs").glob("*.json")
    found = covey.verify(proof, result.folder)
    assert found.failed == ()
    assert LEAVER not in result.names


def test_who_has_left_is_never_asked_again(shrunk):
    result, received = shrunk
    events = told(result)
    (left,) = all_of(ClientLeft, result)
    place = events.index(left)
    cohorts = [
        (at, each.handles) for at, each in enumerate(events) if isinstance(each, CohortSampled)
    ]
    before = sum(left.handle in handles for at, handles in cohorts if at < place)
    assert 2 <= before < 5
    assert all(left.handle not in handles for at, handles in cohorts if at > place)
    assert received == 1 + before  # who it is, and every round until then


IN_A_SIMULATION = """
rounds = 2
[population]
clients = 3
[model]
name = "linear"
[method]
name = "fedavg"
[risk]
name = "none"
"""
PORTS = ("FLWR_LOCAL_SUPERLINK_HTTP_API_PORT", "FLWR_LOCAL_CONTROL_API_PORT")


def test_flowers_own_simulation_plays_a_federation_too(tmp_path, monkeypatch):
    for key, port in zip(PORTS, free_ports(len(PORTS)), strict=True):
        monkeypatch.setenv(key, str(port))
    folder = as_simulated(tmp_path, 3, IN_A_SIMULATION)
    connection = {"covey": {"address": ":local-in-memory:"}}
    (folder / "flwr" / "config.toml").write_text(tomli_w.dumps({"superlink": connection}))
    project = folder / "app" / "pyproject.toml"
    told = tomllib.loads(project.read_text())
    nodes = folder / "nodes" / "client-{partition-id:05}" / "node.toml"
    told["tool"]["flwr"]["app"]["config"]["file"] = str(nodes)
    project.write_text(tomli_w.dumps(told))
    simulated = Deployment(folder)
    try:
        resources = "num-supernodes=3 client-resources-num-cpus=1"
        said = simulated.submit(None, "--federation-config", resources).wait(LONG)
    finally:
        simulated.end()
    assert simulated.running() == []
    there = load(folder / "runs" / "federation")
    assert there.history.finished is not None, said
    assert [r.participants for r in there.history.rounds] == [3, 3]
    config = load_config(folder / "covey.toml", ["engine.name=parallel"])
    same(there, covey.run(config=config, out=tmp_path / "simulated"))
