"""The losses of a client's records: on its node, and what they would be in a simulation."""

import json

import numpy as np
import pytest
import tomli_w
import torch

from covey import RunError
from covey.algorithms.state import OWN_RECORDS, ClientMemory
from covey.flower.client import Node
from covey.runs.own_records import exposed_records
from flower.conftest import settings_with
from flower.test_memory import SOME, last_state, memory_of

TRAIN = {**SOME, "participation": 1.0}
KEEPING = settings_with(
    train={**TRAIN, "keep_losses": True}, rounds=4, risk={"name": "none"}, method={"name": "fedavg"}
)


@pytest.mark.slow
def test_nodes_keep_what_simulated_clients_keep(build):
    federation = build(KEEPING)
    there, here = federation.play(nodes=4), federation.simulated()
    assert there.summary.model_hash == here.summary.model_hash
    kept, apart = (last_state(each).kept(ClientMemory) for each in (here, there))
    assert apart.kept == {}
    for client, handle in here.names.items():
        folder = memory_of(federation, client)
        found = folder.read_tensors(apart.rounds[there.names[client]])[OWN_RECORDS]
        assert found.keys() == kept.kept[handle][OWN_RECORDS].keys()
        for name, value in kept.kept[handle][OWN_RECORDS].items():
            torch.testing.assert_close(found[name], value, rtol=0, atol=0, equal_nan=True)
        held = np.load(federation.path / "data" / f"{client}.npz")
        member = Node(federation.path / client / "node.toml").member().client
        for each in exposed_records(federation.path / client, share=0.5).records:
            (image,) = member.train.inputs[each.place].numpy()
            assert np.array_equal(image, held["x"][each.row])
            upper = np.nanquantile(found["losses"].double().numpy()[:, each.place], 0.75)
            assert each.score == pytest.approx(upper - each.last)
    with pytest.raises(RunError, match="machine of its own"):
        exposed_records(there.folder, "client-00000")


def heard_by(federation, out):
    """Play; return the run, and all that nodes sent but the updates' numbers."""
    heard = []

    def listening(_, reply):
        told = json.loads(reply.content["covey"]["json"])
        arrays = {
            key: [(name, each.shape, each.dtype) for name, each in record.items()]
            for key, record in reply.content.array_records.items()
        }
        heard.append(({**told, "token": "", "agreement": ""}, arrays))
        return [reply]

    federation.wire = listening
    return federation.play(out, nodes=2), heard


@pytest.mark.slow
def test_a_node_keeps_its_losses_and_the_server_learns_nothing_of_it(build):
    federation = build({**KEEPING, "train": TRAIN}, clients=range(2))
    nobody, before = heard_by(federation, "nobody")
    train = {**federation.settings["train"], "keep_losses": True}
    keeping = {"train": train, "engine": {"name": "flower"}}
    told = tomli_w.dumps({**federation.settings, **keeping})
    (federation.path / "covey.toml").write_text(told)
    some, after = heard_by(federation, "some")
    assert some.summary.model_hash == nobody.summary.model_hash
    # same words, same arrays, in the same order
    assert before == after
    there = {file for file in federation.path.rglob("*") if file.is_file()}
    page = federation.path / "client-00001" / "own.html"
    exposed_records(federation.path / "client-00001").write_html(page)
    assert {f for f in federation.path.rglob("*") if f.is_file()} - there == {page}
    assert "Row of its file" in page.read_text()
