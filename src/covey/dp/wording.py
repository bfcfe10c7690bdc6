"""What a guarantee is about, in words: the same for every run."""

from collections.abc import Mapping

from covey.dp.guarantee import Unit
from covey.events import (
    AnswerRefused,
    ClientExposed,
    ClientsReported,
    ClusterAudited,
    Event,
    FairnessMeasured,
    GroupsSought,
    ModelAttacked,
    ModelDiverged,
    ModelsPooled,
    PricesSet,
    RiskMeasured,
    RoundMeasured,
    WeightReduced,
)

__all__ = [
    "ADVERSARY",
    "ALWAYS_OPEN",
    "CHOICES",
    "COUNTS",
    "DIAMETERS",
    "HEADS_HOLD_IF",
    "HOLDS_IF",
    "NOISY_CHOICES",
    "NOT_ACCOUNTED",
    "OPEN",
    "OWN_FEATURES",
    "REFUSALS",
    "RELATION",
    "RELEASES",
    "SEEDED",
    "SERVER",
    "STORED",
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
    ("record", "replaced by another"): "one example of one client is another one",
}
RELEASES: Mapping[Unit, str] = {
    "client": "every cluster model of every round",
    "record": "every update that a client sends",
}
SECRET = (
    "nobody learns what was drawn: the run's secret, who was sampled, who spoke for a set",
    "draws of ChaCha20, rounded to a grid, are as good as real Gaussian noise, and sums of "
    "floats as exact ones",
)
HOLDS_IF: Mapping[Unit, tuple[str, ...]] = {
    "client": (*SECRET, "a client takes part under one name only"),
    "record": (
        *SECRET,
        "the server learns no client's draws; in a simulation one process plays both",
        "every client clips and adds noise as its recipe says",
    ),
}
HEADS_HOLD_IF = (
    "no record's residual in a head without it is above privacy.record_clip: a release "
    "where one is, is refused",
    "no data are told apart better than a record whose direction nobody shares, or all "
    "do: searched for, not proved",
)
REFUSALS = "that a head was not released, as a record's residual was above the bound"
SEEDED = (
    "all that is drawn follows from the run's seed (secrets.source = 'seeded'), and "
    "whoever holds it takes the noise off again"
)
STORED = "raw updates that the server keeps (unlearning.store_updates)"
SERVER = (
    "the server itself: it sees each update before there is noise, and is trusted to add "
    "the noise and to forget"
)
NOT_ACCOUNTED = "no mechanism of this run is accounted for as differentially private"
"""Why there is no guarantee, whatever noise was added."""
NOISY_CHOICES = "every choice of a cluster, given what is not covered"
CHOICES = "which cluster a client chose: the rest holds given the choices"
COUNTS = "how many examples a client holds: its steps and its weight follow from it"
DIAMETERS = "how far apart the updates of an anonymity set are"
OWN_FEATURES = (
    "a feature map that covey does not bring: the rest holds if it looks at one record at "
    "a time, and holds nobody's data"
)
AUDITED = "a simulation's own audit at the end: true risk, exposure, fairness"
OPEN: Mapping[type[Event], str] = {
    RiskMeasured: "risk figures, which members' scores make: the rest holds given them",
    GroupsSought: "the warm start's split by what clients sent: the rest holds given it",
    PricesSet: "prices, which follow what clients wished: the rest holds given them",
    ModelsPooled: "how clusters are pooled and weighted: the rest holds given that",
    AnswerRefused: "whose answers were refused, and why",
    WeightReduced: "who has far more examples than most, and how many",
    ModelDiverged: "whether a model diverged: its clients' losses and refusals show it",
    ClientsReported: "what clients tell of themselves: accuracies, and one bit each",
    RoundMeasured: "how many clients are in each cluster",
    ClusterAudited: AUDITED,
    ModelAttacked: AUDITED,
    ClientExposed: AUDITED,
    FairnessMeasured: AUDITED,
}
"""Events that are published without noise, and how a guarantee says that."""

ALWAYS_OPEN = (
    "what was decided by looking at results: settings, when to stop, which run to keep",
    "the ledger, checkpoints, reports and proofs: who took part where and how often, true "
    "groups, hashes of the examples",
    "how long anything took",
)
