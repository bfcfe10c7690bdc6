"""What every choice of `engine.name` keeps to, built in or a user's own."""

import pytest
from torch import nn

from covey import Engine, EngineFactory
from covey.base.built_ins import BUILT_INS
from covey.base.components import create
from covey.engine.recipe import MULTICLASS
from plugins.engine_single import Single

FACTORIES = [
    *(create("engine", name, "engine.name", EngineFactory) for name in BUILT_INS["engine"]),
    Single(),
]


@pytest.mark.parametrize("factory", FACTORIES, ids=lambda each: type(each).__name__)
def test_it_builds_an_engine(factory):
    engine = factory.build(nn.Linear(2, 2), MULTICLASS, apart=not factory.batches_clients)
    assert isinstance(engine, Engine)


def test_only_remote_clients_keep_their_data_to_themselves():
    remote = [each for each in FACTORIES if each.is_remote]
    assert len(remote) == 1
