"""What an algorithm of federated learning is: a way to start, a round, and an end.

Algorithms are pure: they take a state and return the next one with the facts that a
ledger should remember. They read no clock, open no file and own no randomness.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from covey.algorithms.clients import Clients, Setup
from covey.algorithms.selection import ByLoss, ClusterSelection, ComparesOn
from covey.algorithms.state import RoundResult, ServerState, initial_state
from covey.base.components import Component, Positive
from covey.base.events import ClientsAssigned
from covey.base.rng import Streams
from covey.engine.recipe import Objective

BY_LOSS_ALONE = ByLoss()


@dataclass(frozen=True, slots=True)
class Opening:
    """The rounds before clients choose for themselves.

    Attributes:
        how: `random`: there are none; `groups`: every client is put into its true group, an
            oracle for simulations; `warm`: the server splits the cohort by what it sends.
        shared_rounds: of FedAvg, before a cohort is split.
        kept_rounds: in which clients keep their first cluster.
    """

    how: Literal["random", "warm", "groups"]
    shared_rounds: int
    kept_rounds: int

    @property
    def split_round(self) -> int | None:
        """The round in which clients are split into groups; None: there is none."""
        return self.shared_rounds if self.how == "warm" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What the rounds of an algorithm need of clients, and give away of them.

    Attributes:
        chooses_clusters: whether clients choose among models.
        one_client_each: whether no model is ever shared.
        trains: whether clients train its models.
        calibrates: whether its one model can be calibrated by updates that were kept.
        subtracts: whether its models depend on clients' data through sums alone, from which a
            client that leaves is subtracted; of covey's own this is `ridge`.
        reads_population: whether a round looks at clients that are not in its cohort.
        keeps_clusters_apart: whether nothing that a client sends reaches another cluster; else
            everybody's exposure counts in every cluster.
        sends_sums: whether the server needs nothing of clients but sums: of records, or of
            updates that `Clients.train_and_aggregate` takes.
        seen: what the server sees of single clients, where no masks hide it.
    """

    chooses_clusters: bool = True
    one_client_each: bool = False
    trains: bool = True
    calibrates: bool = False
    subtracts: bool = False
    reads_population: bool = False
    keeps_clusters_apart: bool = False
    sends_sums: bool = False
    seen: str = ""


class Algorithm(Component):
    """An algorithm of federated learning; the fields of a subclass are its settings.

    Write `round`; `init` and `finalize` have defaults for one model that everybody shares,
    or for as many as a field `num_clusters` says. What is carried to the next round beyond
    models and choices is a `ComponentState` of its own: `state.get_state(Mine)` and
    `state.with_state(Mine(...))`. FedAvg is::

        class FedAvg(Algorithm):
            def round(self, state, clients, streams):
                return clients.train_and_aggregate(
                    state, clients.all_in_one("shared"), streams
                )

    What stands beside the three is data: what an algorithm needs, and what it gives away.

    Attributes:
        traits: of the class.
    """

    traits: ClassVar[Traits] = Traits()

    def declares(self, attribute: str) -> bool:
        """Say whether a trait that protects somebody holds, and may be believed.

        A user's own class must say its traits itself: what made inherited ones true it may have
        overridden.
        """
        believed = not self.is_own or "traits" in vars(type(self))
        return believed and bool(getattr(self.traits, attribute))

    @property
    def objective(self) -> Objective | None:
        """What clients minimise beside their loss; None: what the settings say."""
        return None

    @property
    def personal(self) -> Objective | None:
        """What each client's own model minimises beside its loss; None: there are no own ones.

        A client trains its own model beside the one that it was sent, in the same way and
        from where it last ended; its `memory` has the model that was sent, as "shared". The
        own model never leaves the client: risk is measured of shared models alone, and the
        client's accuracy is that of its own.
        """
        return None

    @property
    def note(self) -> str:
        """What a reader of the results must know of it; "": nothing."""
        return ""

    @property
    def num_models(self) -> int | None:
        """How many models there are; None: one for each client."""
        return None if self.traits.one_client_each else getattr(self, "num_clusters", 1)

    @property
    def offers_choices(self) -> bool:
        """Whether clients choose among several models."""
        return self.traits.chooses_clusters and self.num_models not in (None, 1)

    @property
    def choice(self) -> ClusterSelection:
        """By which rule clients choose: its setting `selection`, or the lowest loss."""
        return getattr(self, "selection", BY_LOSS_ALONE)

    @property
    def compares_on(self) -> ComparesOn:
        """On which of its examples a client compares the models, and on how many."""
        return "train", 0

    @property
    def sends_sums_alone(self) -> bool:
        """Whether clients can send all of it under masks: it is one sum over all of them."""
        return self.declares("sends_sums") and self.num_models == 1

    @property
    def starts_warm(self) -> bool:
        """Whether groups are sought in what clients send."""
        return False

    def opening(self, rounds: int) -> Opening:
        """How a run of so many rounds begins: here clients choose from the first one on."""
        del rounds
        return Opening("random", 0, 0)

    def init(self, setup: Setup, streams: Streams) -> ServerState:
        """Return the state before the first round: one model, drawn once."""
        model = setup.draw_model(streams.at("initial model", 0))
        models = len(setup.population) if self.num_models is None else self.num_models
        return initial_state((model,) * models)

    def round(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        """Return what comes of one round with these clients."""
        raise NotImplementedError

    def finalize(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        """Return the last choices: what each client chose, or the one model there is."""
        del streams
        one = {0: 0} if len(state.clusters) == 1 else {}
        chosen = {c.handle: state.assignment.get(c.handle) for c in clients.cohort}
        final = {h: one.get(0) if j is None else j for h, j in chosen.items()}
        fact = ClientsAssigned({h: j for h, j in final.items() if j is not None}, "final")
        return RoundResult(state.with_choices(fact.clusters), (fact,))


class Clustered(Algorithm):
    """An algorithm whose clients choose among several models.

    Attributes:
        num_clusters: how many models clients choose among, or are divided over.
        initialisation: how they come to differ: `random` (the papers), `warm`: groups are
            sought in what clients send, `groups` (an oracle, marked so).
        select_on: compare the models on `train` or `holdout` examples.
    """

    num_clusters: Positive = 2
    initialisation: Literal["random", "warm", "groups"] = "warm"
    select_on: Literal["train", "holdout"] = "train"

    @property
    def compares_on(self) -> ComparesOn:
        """As the settings say."""
        return self.select_on, 0

    @property
    def starts_warm(self) -> bool:
        """Whether the groups are sought in what clients send."""
        return self.initialisation == "warm" and self.num_clusters > 1

    @property
    def enters_at_will(self) -> bool:
        """Whether clients enter any cluster by their loss alone, once groups were found."""
        return False

    @property
    def note(self) -> str:
        """What a reader must know: who decided the groups."""
        known = self.initialisation == "groups" and self.num_clusters > 1
        return "Clusters started from the true groups: an oracle." if known else ""
