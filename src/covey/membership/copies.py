"""Non-members that copy members: attacks on them find less than there is."""

from collections.abc import Iterable

from covey.data.examples import Examples, hashes

__all__ = ["copied"]

MOST = 0.01
"""Share of the non-members that may be copies: a risk is then off by 0.005 at most."""


def copied(members: Iterable[Examples], others: Iterable[Examples]) -> str:
    """Say that the others have inputs of the members; "" if hardly any has.

    Labels do not count: a member under another label is no non-member.
    """
    inside = {each for examples in members for each in hashes(examples.inputs)}
    found = [each in inside for examples in others for each in hashes(examples.inputs)]
    if sum(found) <= MOST * len(found):
        return ""
    return (
        f"non-members must not be what clients train on, found {sum(found)} of "
        f"{len(found)} with the inputs of a member. Hold out other examples, and remove "
        f"duplicates before anything is held out"
    )
