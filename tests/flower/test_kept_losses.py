"""The losses of a client's records: on its node, and what they would be in a simulation."""

import pytest
import torch

from covey.algorithms import ClientMemory
from covey.algorithms.loss_traces import OWN_RECORDS
from covey.errors import RunError
from covey.runs import exposed_records
from flower.conftest import settings_with
from flower.test_memory import NOBODY, SOME, last_state, memory_of

WITHHOLD = {"withhold": "most-exposed 20%"}


@pytest.mark.parametrize("more", [{"keep_losses": True}, WITHHOLD], ids=str)
def test_nodes_keep_what_simulated_clients_keep(build, more):
    train = {**SOME, "participation": 1.0, **more}
    settings = settings_with(train=train, rounds=5, redteam=NOBODY)
    federation = build({**settings, "method": {"name": "fedavg"}})
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
        assert own.records == exposed_records(here.folder, client, 0.5).records
        with pytest.raises(RunError, match="machine of its own"):
            exposed_records(there.folder, client)
