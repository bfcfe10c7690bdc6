"""How a run hides clients, or records: who adds how much noise to what, and what masks hide.

Settings are read once (`covey.settings.privacy`). What clips, adds noise, sends under masks,
accounts for it, or says whom that leaves to trust, reads the plan.
"""

from dataclasses import dataclass
from typing import Literal

from covey.base.names import NoiseModel, Unit
from covey.secure_sums.noise import NoiseShares


@dataclass(frozen=True, slots=True)
class Masks:
    """Under which clients send what is added up.

    Attributes:
        min_cohort: the fewest clients that a sum may be over.
        colluders: of them, who may give the server the noise that they added.
    """

    min_cohort: int
    colluders: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyPlan:
    """How a run hides clients, or records.

    Attributes:
        unit: what hides in a sum of updates; a "record" in one of clipped gradients, as which
            clients then send them.
        noise: z of the noise on updates: on their sum, or `local` on each; 0: there is none.
        by: who adds it.
        clip: C, the largest L2 norm of an update; of records `bound` has it.
        record_clip: the largest L2 norm of one record's gradient; 0: it is not clipped.
        step_noise: z of the noise in clients' own steps (DP-SGD).
        choice_noise: b of report-noisy-min, by which clients choose; 0: they choose in the open.
        masks: None: the server sees what each client sends.
        exposure: tau, the balanced accuracy that no attack exceeds; or what clients accept.
        releases: in how many rounds a client may be for that to hold.
        weighs_by_budget: whether clients count less, so that their budgets last all rounds.
        expected_records: by which a sum of gradients is divided; 0: as many as there are.
        rounds: T.
        sampling: chance that a client takes part in a round.
        counts: how many numbers clients count their losses in under noise; 0: they do not.
        counts_every: rounds between two counts.
        delta: of what is promised.
    """

    unit: Unit = "client"
    noise: float = 0.0
    by: NoiseModel = "central"
    clip: float = 0.0
    record_clip: float = 0.0
    step_noise: float = 0.0
    choice_noise: float = 0.0
    masks: Masks | None = None
    exposure: Literal["accepted"] | float = 1.0
    releases: int = 1
    weighs_by_budget: bool = False
    expected_records: int = 0
    rounds: int = 1
    sampling: float = 1.0
    counts: int = 0
    counts_every: int = 1
    delta: float = 1e-5

    @property
    def server_adds_noise(self) -> bool:
        """Whether the noise on a sum of updates is the server's to add."""
        return self.noise > 0 and self.by == "central"

    @property
    def clients_add_noise(self) -> bool:
        """Whether every client adds noise, or a share of it, to the updates that it sends."""
        return self.noise > 0 and self.by != "central"

    @property
    def sums_gradients(self) -> bool:
        """Whether clients send sums of clipped gradients: one step a round on all records."""
        return self.unit == "record"

    @property
    def hides_nothing(self) -> bool:
        """Whether updates and choices are what they are without it."""
        return not (self.noise or self.record_clip or self.choice_noise or self.masks)

    @property
    def min_cohort(self) -> int:
        """The fewest clients that a sum under masks may be over; 0: nothing is masked."""
        return self.masks.min_cohort if self.masks else 0

    def bound(self, rate: float) -> float:
        """Return the largest L2 norm of what a client, or a record, adds in steps of this rate."""
        return rate * self.record_clip if self.sums_gradients else self.clip

    def shares(self, bound: float = 1.0, unit: Unit = "client") -> NoiseShares | None:
        """Return the noise that clients add to what they send under masks; None: none.

        Args:
            bound: the largest norm of what a client, or one of its records, adds to a sum.
            unit: which of the two.
        """
        if not (self.masks and self.clients_add_noise):
            return None
        honest = self.masks.min_cohort - self.masks.colluders
        return NoiseShares(bound, self.noise, honest, unit)

    def update_shares(self, rate: float = 1.0) -> NoiseShares | None:
        """Return the same of updates in a round of this rate."""
        return self.shares(self.bound(rate), self.unit)

    def rounding(self, coordinates: int) -> float:
        """Return what rounding updates with so many coordinates adds to 1 / z."""
        shares = self.shares(unit=self.unit)
        return shares.rounding(coordinates) if shares else 0.0

    def hidden_by(self, coordinates: int, weight: float = 1.0) -> float:
        """Return the multiplier of an update with this weight: 1 / (w / z + rounding)."""
        return 1 / (weight / self.noise + self.rounding(coordinates))
