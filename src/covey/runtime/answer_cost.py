"""What an answer to a client that leaves would take, from what is recorded."""

from dataclasses import dataclass
from statistics import median

from covey.ledger import Ledger
from covey.runtime.folder import RunFolder
from covey.unlearning.plan import Option

__all__ = ["AnswerCost", "answer_cost"]


@dataclass(frozen=True, slots=True)
class AnswerCost:
    """What an answer takes.

    Attributes:
        seconds: predicted from how long the run's rounds took; None: no round did.
        bytes_deleted: of states and updates that the answer makes obsolete.
    """

    seconds: float | None
    bytes_deleted: int


def answer_cost(folder: RunFolder, ledger: Ledger, option: Option) -> AnswerCost:
    """Return what an answer would cost now."""
    first = option.first_replayed_round
    subtracts = option.answer == "subtract"
    if not option.possible or first is None:
        return AnswerCost(0.0, 0)
    took = ledger.seconds_per_round()
    obsolete = [
        path
        for place in (folder.checkpoints, folder.updates)
        for path in place.glob("round-*.safetensors")
        if subtracts or int(path.stem.removeprefix("round-")) >= first
    ]
    return AnswerCost(
        seconds=option.rounds_replayed * median(took) if took else None,
        bytes_deleted=sum(path.stat().st_size for path in obsolete),
    )
