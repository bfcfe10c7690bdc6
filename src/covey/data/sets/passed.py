"""Clients that a Python program passed: only such a program can pass them again."""

from __future__ import annotations

from typing import Any, ClassVar

from covey import data
from covey.data.base import ClientSource
from covey.errors import DataError

__all__ = ["PassedClients"]


class PassedClients(ClientSource):
    """The place, in settings, of data that live in a program."""

    is_passed: ClassVar[bool] = True

    def clients(self, request: data.PopulationRequest) -> Any:  # noqa: ANN401, ARG002
        """Refuse: the examples are not here.

        Raises:
            DataError: always.
        """
        raise DataError(
            "The data of this run were passed by a Python program, and only such a "
            "program can pass them again: call covey.resume(folder, model, clients), or "
            "covey.audit(folder, model=..., clients=...)."
        )
