import pytest
from torch import nn

from auditor.tiny import Sides, halves, train
from covey import Examples, ModelAudit, audit_model


@pytest.fixture(scope="session")
def sides() -> Sides:
    """Records with random labels."""
    return halves()


@pytest.fixture(scope="session")
def heart(sides) -> nn.Module:
    """A network that knows the members' random labels by heart."""
    return train(Examples(*sides.members), seed=1)


@pytest.fixture(scope="session")
def audit(heart, sides) -> ModelAudit:
    """Its audit, with references."""
    return audit_model(heart, *sides, references=train, num_references=4)
