"""What a component is: one class whose fields are its options and whose methods act."""

from collections.abc import Iterator
from typing import ClassVar

from covey.components.capability import Capability, Claim
from covey.components.section import SettingsSection

__all__ = ["Component"]


class Component(SettingsSection):
    """A replaceable part of a run: an algorithm, an aggregation, a loss, and so on.

    A subclass is frozen settings that can act. Its annotated fields are its options: they
    are checked when it is made, stand in a run's `config.toml` under
    `[section.options]`, and are recorded with the run. All of them must be values that
    TOML can hold.

    Attributes:
        requires: what it rests on.
        rules_out: what is no longer there beside it. Override `claim` where either hangs
            on the options.
    """

    requires: ClassVar[frozenset[Capability]] = frozenset()
    rules_out: ClassVar[frozenset[Capability]] = frozenset()

    def claim(self, part: str) -> Claim:
        """Return what this component needs and rules out; `part` is its setting."""
        return Claim(part, self.requires, self.rules_out)

    def claims(self, part: str) -> Iterator[Claim]:
        """Yield the claim, and those of single options with words of their own."""
        yield self.claim(part)

    def idle_options(self, section: str) -> Iterator[tuple[str, str]]:
        """Yield the options that do nothing beside the others, each with the reason.

        Args:
            section: of the settings, for the reasons, which have no full stop.
        """
        del section
        yield from ()
