"""The losses of a client's records: on its node, and what they would be in a simulation."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import covey
from covey.algorithms import ClientMemory
from covey.algorithms.loss_traces import OWN_RECORDS
from covey.config import Config
from covey.deploy import NodeFile
from covey.errors import ConfigError, RunError
from covey.flower.node import Node
from covey.runs import exposed_records
from flower.conftest import settings_with
from flower.test_memory import NOBODY, SOME, last_state, memory_of

WITHHOLD = {"withhold": "most-exposed 20%"}
IFCA = {"name": "ifca", "initialisation": "random"}


@pytest.mark.parametrize(
    ("more", "method"),
    [({"keep_losses": True}, IFCA), (WITHHOLD, {"name": "fedavg"})],
    ids=("kept", "withheld"),
)
def test_nodes_keep_what_simulated_clients_keep(build, more, method):
    train = {**SOME, "participation": 1.0, **more}
    settings = settings_with(train=train, rounds=5, redteam=NOBODY)
    federation = build({**settings, "method": method})
    there, here = federation.play(nodes=6), federation.simulated()
    assert there.summary["model_hash"] == here.summary["model_hash"]
    kept, apart = (last_state(each).kept(ClientMemory) for each in (here, there))
    assert apart.kept == {}
    for client, handle in here.names.items():
        folder = memory_of(federation, client)
        found = folder.read_tensors(apart.rounds[there.names[client]])[OWN_RECORDS]
        assert found.keys() == kept.kept[handle][OWN_RECORDS].keys()
        for name, value in kept.kept[handle][OWN_RECORDS].items():
            torch.testing.assert_close(
                found[name], value, rtol=0, atol=0, equal_nan=True
            )
        own = exposed_records(federation.path / client, share=0.5)
        held = np.load(federation.path / "data" / f"{client}.npz")
        member = Node(federation.path / client / "node.toml").member().client
        for each in own.records:
            (image,) = member.train.inputs[each.place].numpy()
            assert np.array_equal(image, held["x"][each.row])
        with pytest.raises(RunError, match="machine of its own"):
            exposed_records(there.folder, client)
        # who chooses once more at the end has the final model, as whoever simulates has
        simulated = here.exposed_records(client, 0.5)
        same = own.score_told == simulated.score_told
        assert same == (method is IFCA)
        trace = found["losses"].double().numpy()
        for each in own.records if not same else ():
            upper = np.nanquantile(trace[:, each.place], 0.75)
            assert each.score == pytest.approx(upper - each.last)
        if same:
            rowless = tuple(replace(each, row=None) for each in own.records)
            assert rowless == simulated.records


OWN = {"client-00001": "most-exposed 25%", "client-00003": "most-exposed 1%"}


def heard_by(federation, out, **own):
    """Play; return the run, and all that nodes sent but the updates' numbers."""
    heard = []

    def listening(_, reply):
        told = json.loads(reply.content["covey"]["json"])
        arrays = {
            key: [(name, each.shape, each.dtype) for name, each in record.items()]
            for key, record in reply.content.array_records.items()
        }
        heard.append(({**told, "token": ""}, arrays))
        return [reply]

    federation.wire = listening
    for name in OWN:
        federation.node(name, **({"withhold": own[name]} if own else {}))
    return federation.play(out, nodes=6), heard


def test_a_node_leaves_out_what_it_says_and_the_server_learns_nothing_of_it(build):
    train = {**SOME, "participation": 1.0, "keep_losses": True}
    settings = settings_with(train=train, rounds=4, redteam=NOBODY)
    federation = build({**settings, "method": {"name": "fedavg"}})
    nobody, before = heard_by(federation, "nobody")
    some, after = heard_by(federation, "some", **OWN)
    here = covey.run(
        config=Config.of(federation.settings),
        out=federation.path / "simulated",
        withhold=OWN,
    )
    assert some.summary["model_hash"] == here.summary["model_hash"]
    assert some.summary["model_hash"] != nobody.summary["model_hash"]
    counts = [
        sum(each.withheld for each in exposed_records(federation.path / name).records)
        for name in ("client-00000", *OWN)
    ]
    assert counts == [0, 20, 1]  # of 80
    there = {file for file in federation.path.rglob("*") if file.is_file()}
    page = federation.path / "client-00001" / "own.html"
    exposed_records(federation.path / "client-00001").write_html(page)
    assert {f for f in federation.path.rglob("*") if f.is_file()} - there == {page}
    assert "Row of its file" in page.read_text()
    # same words, same arrays, in the same order: their numbers alone are others
    assert before == after
    written = [f for f in some.folder.rglob("*") if f.is_file()]
    assert written
    assert not [f for f in written if b"most-exposed" in f.read_bytes()]


@pytest.mark.parametrize("told", ["most-exposed 60%", "2%", ""])
def test_a_node_that_says_no_share_is_told(tmp_path, told):
    path = tmp_path / "node.toml"
    path.write_text(f'name = "a"\nseed = 1\nwithhold = "{told}"\n')
    with pytest.raises(ConfigError, match="withhold: expected a share of 0% to 50%"):
        NodeFile.read(path)
