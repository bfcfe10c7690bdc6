"""What a guarantee of differential privacy says: codes, which proofs sign, and the words of each.

The name of a member is the code, its value the words.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import ConfigDict, Field


class Term(StrEnum):
    """What a guarantee is about, covers, leaves open or rests on."""

    SEES_MODELS = "sees every cluster model of every round, other clients included"
    SEES_UPDATES = "sees everything that a client sends, the server included"
    SEES_SUMS = (
        "sees every sum that masks open, the server included, and the noise of as many clients "
        "of it as may help the server (privacy.colluders)"
    )
    CLIENT_COUNTS = "one client's updates count or are zero; that it takes part is known"
    CLIENT_REPLACED = (
        "one client's examples are replaced by any others; that it takes part is known"
    )
    RECORD_COUNTS = "one example of one client is there or not"
    RECORD_REPLACED = "one example of one client is another one"
    EVERY_MODEL = "every cluster model of every round"
    EVERY_UPDATE = "every update that a client sends"
    EVERY_SUM = "every sum over clients' updates"
    EVERY_COUNT = "every sum of counts of losses, and the risks that follow from them"
    NOISY_CHOICES = "every choice of a cluster, given what is not covered"
    DRAWS_HIDDEN = (
        "no one learns what was drawn: the run's secret, who was sampled, who spoke for a set"
    )
    GOOD_DRAWS = (
        "draws of ChaCha20, rounded to a grid, are as good as real Gaussian noise, and sums of "
        "floats as exact ones"
    )
    GOOD_BITS = "bits of ChaCha20 are as good as true ones: what is made of them is exact"
    ALL_RECORDED = (
        "the server records all that it asks for; a node with an epsilon_limit counts for itself"
    )
    MASKS_HOLD = (
        "no more clients of a sum help the server than privacy.colluders says, and all others "
        "add their noise and open sums as covey's nodes do"
    )
    ONE_NAME = "a client takes part under one name only"
    DRAWS_APART = "the server learns no client's draws; in a simulation one process plays both"
    RECIPE_KEPT = "every client clips and adds noise as its recipe says"
    AS_PLANNED = (
        "the run is as planned: one model a round, sets of exactly this size, no round played "
        "again; choices of a cluster cost extra"
    )
    STORED = "raw updates that the server keeps (leaving.store_updates)"
    SERVER = (
        "the server itself: it sees each update before there is noise, and is trusted to add "
        "the noise and to forget"
    )
    CHOICES = "which cluster a client chose: the rest holds given the choices"
    COUNTS = "how many examples a client holds: its steps and its weight follow from it"
    PUBLIC_EXAMPLES = (
        "the public examples by which features are whitened (model.whiten_from) are no client's"
    )
    EXPECTED_RECORDS = (
        "how many records there are, to two digits, unless privacy.expected_records is set"
    )
    CLASS_COUNTS = (
        "how many examples of each class all clients have, by which losses are weighted: the rest "
        "holds given them"
    )
    DIAMETERS = "how far apart the updates of an anonymity set are"
    OWN_SCALES = (
        "the mean and the deviation by which a client scales its columns (data.standardise), which "
        "a record of its own moves: the rest holds given them"
    )
    OWN_FEATURES = (
        "a feature map that is not covey's own: the rest holds if it looks at one record at "
        "a time, and holds no one's data"
    )
    AUDITED = "a simulation's own audit: true risk, exposure and fairness at the end, and metrics"
    RISKS = "risk figures, which members' scores make: the rest holds given them"
    GROUPS = "the warm start's split by what clients sent: the rest holds given it"
    PRICES = "prices, which follow what clients wanted: the rest holds given them"
    POOLING = "how clusters are pooled and weighted: the rest holds given that"
    REFUSED_ANSWERS = "whose answers were refused, and why"
    WEIGHTS = "who has far more examples than most, and how many"
    DIVERGED = "whether a model diverged: its clients' losses and refusals show it"
    REPORTS = "what clients report of themselves: accuracies, and one bit each"
    CLUSTER_SIZES = "how many clients are in each cluster"
    DECISIONS = "what was decided by looking at results: settings, when to stop, which run to keep"
    RECORD_OF_RUN = (
        "the ledger, checkpoints, reports and proofs: who took part where and how often, true "
        "groups, hashes of the examples"
    )
    TIMES = "how long anything took"


class NoGuarantee(StrEnum):
    """Why nothing is guaranteed."""

    NOT_ACCOUNTED = "no mechanism of this run is accounted for as differentially private"
    SEEDED = (
        "all that is drawn follows from the run's seed (secrets.source = 'seeded'), and "
        "anybody who holds it takes the noise off again"
    )
    UNKNOWN_EVENT = "it is not known what one of its events reveals about clients"
    NOT_ADDED_UP = "no accountant adds up what this run released"
    BOTH = "records hide in steps of their own and in sums: what both cost together is unknown"
    BARE = "a merge took a cluster's updates bare"
    BARE_STEPS = "a client trained without noise"


TermCode = Annotated[str, Field(pattern=f"^({'|'.join(Term.__members__)})$")]
NoGuaranteeCode = Annotated[str, Field(pattern=f"^({'|'.join(NoGuarantee.__members__)})$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guaranteed:
    """A guarantee that holds, in codes and numbers; fields as of `covey.dp`'s `Guarantee`."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    epsilon: Annotated[float, Field(ge=0)]
    delta: Annotated[float, Field(ge=0, le=1)]
    unit: Literal["client", "record"]
    relation: TermCode
    adversary: TermCode
    covers: tuple[TermCode, ...]
    does_not_cover: tuple[TermCode, ...]
    holds_if: tuple[TermCode, ...]
    accountant: Literal["PLD", "RDP"]
    noise_multiplier: Annotated[float, Field(ge=0)]
