"""Four hospitals over TLS, each with a table of its own as CSV: the bits of their simulation.

Their sums are under masks, and one of them leaves; a fifth one was not invited.
"""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import tomli_w

import covey
from covey import load, load_config
from covey_flower.deployment import node_key
from flower.deployment import Deployment, invited
from flower.test_network import ended, leave

pytestmark = pytest.mark.slow

SIZES = {"basel": 30, "budapest": 170, "cleveland": 200, "long-beach": 85}
LEAVER = "budapest"
SETTINGS = """
rounds = 1
[data]
name = "npz"
dir = "{tables}"
label = "ill"
standardise = "client"
[population]
holdout = 0.0
[model]
name = "linear-head"
features = "none"
[method]
name = "ridge"
num_clusters = 1
[risk]
name = "none"
[privacy]
secure_sums = true
min_cohort = 3
[secrets]
source = "seeded"
"""


def write_tables(folder: Path) -> None:
    """Patients in units of each hospital's own; at the smallest all are ill."""
    folder.mkdir()
    draws = np.random.default_rng(0)
    for place, (name, count) in enumerate(SIZES.items()):
        hidden = draws.normal(size=(count, 4))
        ill = (hidden @ [1.0, -0.5, 0.0, 0.3] + draws.normal(size=count) > 0) | (name == "basel")
        ages = (50 + 10 * hidden[:, :1]).round()
        table = np.column_stack([ages, hidden[:, 1:] * (1 + place) + place, ill])
        header = "age,pressure,rate,depression,ill"
        np.savetxt(folder / f"{name}.csv", table, "%.6g", ",", header=header, comments="")


@pytest.fixture(autouse=True)
def private_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place for secrets and signing keys."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))


def test_four_hospitals_with_tables_of_their_own_and_one_leaves(tmp_path: Path):
    tables = tmp_path / "tables"
    write_tables(tables)
    (tmp_path / "a federation").mkdir()  # a name that needs quoting
    federation = invited(tmp_path / "a federation", SETTINGS.format(tables=tables), [*SIZES])
    for name in SIZES:
        node = federation / "nodes" / name
        (tables / f"{name}.csv").rename(node / "mine.csv")
        file = {"name": name, "seed": 0, "data": "mine.csv"}
        (node / "node.toml").write_text(tomli_w.dumps(file))
    mallory = shutil.copytree(federation / "nodes" / LEAVER, federation / "nodes" / "mallory")
    (mallory / "key").write_bytes(node_key("mallory")[0])
    settings, run = federation / "covey.toml", federation / "run"
    with Deployment(federation, [*SIZES]) as deployment:
        assert deployment.start_node("mallory").wait(60) == 1
        assert "Exit Code: 305" in deployment.log("mallory")  # its key is not registered
        assert deployment.online() == {*SIZES}
        ended(deployment.covey("run", settings, "--out", run))
        together = load(run).summary.model_hash
        leave(federation / "nodes" / LEAVER)
        ended(deployment.covey("forget", run, LEAVER, "--basis", "erasure"))
        said = ended(deployment.covey("resume", run))
    assert deployment.running() == []
    for name in SIZES:
        node = federation / "nodes" / name
        (sums,) = (node / "memory").glob("?*.sums.json")
        assert json.loads(sums.read_text())["opened"]
        (node / "mine.csv").rename(tables / f"{name}.csv")
    simulated = load_config(settings, ["engine.name=parallel"])
    here = covey.run(config=simulated, out=tmp_path / "here", progress=False)
    assert together == here.summary.model_hash
    others = load_config(settings, ["engine.name=parallel", f"population.exclude=['{LEAVER}']"])
    never = covey.run(config=others, out=tmp_path / "never", progress=False)
    assert load(run).summary.model_hash == never.summary.model_hash != together
    ((proof, salt),) = re.findall(r"proof (.+), salt .+: (\w+)$", said, re.MULTILINE)
    assert covey.verify(proof, run, name_and_salt=(LEAVER, salt)).failed == ()
