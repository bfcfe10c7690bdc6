"""What one part of a run rests on, and another may take away.

Every capability is there until some part rules it out. One check compares them all, so
that no part has to know another by name.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

__all__ = ["Capability", "Claim", "conflicts"]


class Capability(Enum):
    """Something that a part of a run may need; the value completes "X needs ...".

    The set is closed: a component chooses among these, and adds none.
    """

    SINGLE_UPDATES = "the server to see single updates"
    SUMS_ALONE = "clients to send nothing but sums"
    TRAINED_UPDATES = "updates that clients train"
    STORED_UPDATES = "clients' updates to be kept and calibrated"
    EXACT_SUMS = "sums without noise"
    BOUNDED_CONTRIBUTION = "every client's contribution to be bounded"
    UNIFORM_WEIGHTS = "clients to count alike, however many examples they hold"
    EXAMPLE_COUNTS = "to know how many examples each client holds"
    REPLAYABLE_ROUNDS = "rounds that can be played again"
    SHARED_MODEL = "one model for everybody"
    SHARED_CLUSTERS = "models that several clients share"
    CLUSTER_CHOICE = "clients that choose their cluster"
    COST_CHOICE = "choices by the lowest cost of a round"
    CLUSTER_ISOLATION = "every cluster to depend on its own clients only"
    PUBLIC_COHORT = "who takes part to be no secret"
    KNOWN_POPULATION = "to know all clients from the start"
    KNOWN_GROUPS = "to know every client's group"
    ALL_LOSSES = "to know what every client measured"
    SERVER_DATA = "data on the server that are like the clients'"
    CLIENT_DATA = "to see every client's data"
    HELD_OUT_EXAMPLES = "clients to hold examples out"
    MEASURED_RISK = "a measured risk"
    CLASS_LABELS = "labels that are classes"
    EXCLUSIVE_CLASSES = "one class per example"
    NUMBER_LABELS = "labels that are numbers"
    BOUNDED_LOSS = "a loss with a known bound"
    PLAIN_GRADIENTS = "the gradient of a batch's mean loss"
    EXAMPLE_GRADIENTS = "the gradient of every single example"
    SEPARATE_TRAINING = "every client to be trained by itself"
    FULL_PRECISION = "training in float32"
    SIMULATED_CLIENTS = "clients that are simulated here"
    DATA_SET = "one data set out of which clients' examples are dealt"
    IMAGES = "images"


@dataclass(frozen=True, slots=True)
class Claim:
    """What one part of a run needs and rules out.

    Attributes:
        part: what it is called in messages: the setting that asks for it.
        remedy: what else to do about a conflict than to change the other part.
    """

    part: str
    requires: frozenset[Capability] = frozenset()
    rules_out: frozenset[Capability] = frozenset()
    remedy: str = ""


def conflicts(claims: Sequence[Claim]) -> Iterator[str]:
    """Yield a sentence for every part that needs what another part rules out."""
    for needy in claims:
        for other in claims:
            shared = needy.requires & other.rules_out
            for capability in sorted(shared, key=lambda each: each.name):
                yield (
                    f"{needy.part} needs {capability.value}, but {other.part} rules it "
                    f"out. {needy.remedy or other.remedy or 'Change one of the two.'}"
                )
