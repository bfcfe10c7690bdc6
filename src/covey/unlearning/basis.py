"""Which answers go with what a request rests on.

    erasure      never a denial; of "auto" the subtraction where there is one, which leaves
                 nothing of the client in any model, else the retraining, the only answer
                 after which no round holds the client
    objection    as erasure, which who objects (GDPR Art. 21) may ask for (Art. 17(1)(c))
    withdrawal   whatever "none" gives: the client is in no later round; what was done
                 before may stay
    restriction  a denial alone: every other answer deletes states and plays rounds again
    none         the cheapest answer that is exact

What the law asks of an answer is not decided here.
"""

from collections.abc import Sequence

from covey.errors import RunError
from covey.types import Basis
from covey.unlearning.plan import Option, cheapest

__all__ = ["answer_for", "check_basis"]

REMOVING: tuple[Basis, ...] = ("erasure", "objection")
"""After these nothing of the client may stay in a round that counts."""


def check_basis(wanted: str, basis: str) -> None:
    """Refuse an answer that does not go with what the request rests on.

    Raises:
        RunError: it does not.
    """
    if basis in REMOVING and wanted == "deny":
        raise RunError(
            f"A request for {basis} is never denied, since a denial removes nothing from "
            f"the model, but it was asked with --answer deny --basis {basis}. Ask with "
            f"--answer retrain, or state another --basis."
        )
    if basis == "restriction" and wanted not in ("auto", "deny"):
        raise RunError(
            f"A restriction asks that nothing be deleted and nothing more be done with "
            f"the data, but --answer {wanted} deletes states and plays rounds again. Ask "
            f"with --answer deny, or state another --basis."
        )


def answer_for(found: Sequence[Option], wanted: str, basis: Basis) -> Option:
    """Return the answer that is asked for; of "auto" the one that goes with the basis.

    Raises:
        RunError: that answer would not be true, cannot be given, or does not go with
            the basis.
    """
    check_basis(wanted, basis)
    if wanted != "auto" or basis in ("withdrawal", "none"):
        return cheapest(found, wanted)
    if basis in REMOVING:
        subtracted = any(each.answer == "subtract" and each.possible for each in found)
        return cheapest(found, "subtract" if subtracted else "retrain")
    try:
        return cheapest(found, "deny")
    except RunError as error:
        raise RunError(
            f"A restriction is answered by a denial alone, which deletes no state and "
            f"plays no round again, but here it cannot be given. Leave the run as it is, "
            f"or state another --basis. The reason: {error}"
        ) from error
