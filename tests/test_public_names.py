"""The public surface is a list, and the list is true."""

from types import ModuleType

import covey


def test_all_is_what_can_be_imported():
    promised = {name: getattr(covey, name) for name in covey.__all__}
    assert len(promised) == len(covey.__all__)
    assert [n for n, value in promised.items() if isinstance(value, ModuleType)] == []
    assert all(value is not None for value in promised.values())
