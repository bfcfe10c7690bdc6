"""What a guarantee is about, in words: the same for every run."""

from collections.abc import Mapping

from covey.events import (
    ClientExposed,
    ClusterAudited,
    Event,
    FairnessMeasured,
    GroupsSought,
    ModelsPooled,
    PricesSet,
    RiskMeasured,
    RoundMeasured,
)
from covey.privacy.guarantee import Unit

__all__ = [
    "ADVERSARY",
    "ALWAYS_OPEN",
    "CHOICES",
    "COUNTS",
    "DIAMETERS",
    "HOLDS_IF",
    "OPEN",
    "RELATION",
    "RELEASES",
    "SEEDED",
    "SERVER",
]

ADVERSARY: Mapping[Unit, str] = {
    "client": "sees every cluster model of every round, other clients included",
    "record": "sees everything that a client sends, the server included",
}
RELATION: Mapping[tuple[Unit, str], str] = {
    ("client", "contributes or not"): (
        "one client's updates count or are zero; that it takes part is known"
    ),
    ("client", "replaced by another"): (
        "one client's examples are replaced by any others; that it takes part is known"
    ),
    ("record", "contributes or not"): "one example of one client is there or not",
}
RELEASES: Mapping[Unit, str] = {
    "client": "every cluster model of every round",
    "record": "every update that a client sends",
}
SECRET = (
    "nobody learns what was drawn: the run's secret, who was sampled, who spoke for a set",
    "draws of a generator of 64-bit numbers are as good as real Gaussian noise",
)
HOLDS_IF: Mapping[Unit, tuple[str, ...]] = {
    "client": (*SECRET, "a client takes part under one name only"),
    "record": (*SECRET, "every client clips and adds noise as its recipe says"),
}
SEEDED = (
    "all that is drawn follows from the run's seed (secrets.source = 'seeded'), and "
    "whoever holds it takes the noise off again"
)
SERVER = (
    "the server itself: it sees each update before there is noise, and is trusted to add "
    "the noise and to forget"
)
CHOICES = "which cluster a client chose: the rest holds given the choices"
COUNTS = "how many examples a client holds: its steps and its weight follow from it"
DIAMETERS = "how far apart the updates of an anonymity set are"
AUDITED = "a simulation's own audit at the end: true risk, exposure, fairness"
OPEN: Mapping[type[Event], str] = {
    RiskMeasured: "risk figures, which members' scores make",
    GroupsSought: "the warm start's split of the clients by what they sent",
    PricesSet: "prices, which follow what clients wished",
    ModelsPooled: "how much clusters are pooled, where that follows measured risk",
    RoundMeasured: "how many clients are in each cluster",
    ClusterAudited: AUDITED,
    ClientExposed: AUDITED,
    FairnessMeasured: AUDITED,
}
"""Facts that are told without noise, and how a guarantee says that."""

ALWAYS_OPEN = (
    "what was decided by looking at results: settings, when to stop, which run to keep",
    "the ledger, checkpoints and proofs, which tell who took part where",
    "how long anything took",
)
