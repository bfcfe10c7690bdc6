"""Aggregation that shows one perturbed update per anonymity set: its settings."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from covey.aggregation.anonymity import (
    WINDOW,
    AnonymityConfig,
    L2Bound,
    anonymity_aggregator,
    dp_anonymity,
    noise_scale,
)
from covey.aggregation.base import Aggregation, AnonymityTerms, FederationInfo
from covey.aggregation.merging import AggregationResult, Aggregator, ClientUpdate
from covey.aggregation.microaggregation import set_sizes
from covey.aggregation.norm_bounded import bounded_by_median
from covey.components.capability import Capability, Claim
from covey.components.foreign import reserved
from covey.components.section import NotNegative, Positive
from covey.rng import Streams
from covey.types import Params

__all__ = ["AnonymitySets"]


class AnonymitySets(Aggregation):
    """Perturbed k-anonymous integrally private averaging: `anonymity_aggregator`.

    Attributes:
        min_anonymity: the paper's k: sets have k to 2k - 1 members.
        deniability_threshold: the paper's x: a client is denied while every set that held
            it keeps so many members.
        min_organisations: different organisations in each set; sets with fewer are joined.
        partition: of the clients of a cluster into sets.
        distance: what a partition compares.
        max_distance: the paper's Delta: a member farther away does not count towards x.
        noise: what is added to a representative; `sound`: as much as `epsilon` asks for.
        radius: for `paper` and `sound`.
        epsilon: what `sound` keeps to, over all rounds.
        delta: what `sound` keeps to.
        max_relative_norm: above 0: before sets are formed, an update is shortened to so
            many times the median norm in its cluster. Everybody stays in a set: a rule
            that leaves out whoever is far from the others would make sets smaller than k,
            show in the ledger who was left out, and deny nothing to those.

    References:
        Varshney, Torra, Efficient Federated Unlearning under Plausible Deniability, 2024,
        Algorithm 1 and Eq. 10-12.
    """

    min_anonymity: Positive = 6
    deniability_threshold: Positive = 3
    min_organisations: Positive = 1
    partition: Literal["mdav", "kmeans", "public-random"] = "mdav"
    distance: Literal["l2", "cosine"] = "l2"
    max_distance: NotNegative = 0.0
    noise: Literal["none", "released", "paper", "sound"] = "none"
    radius: Annotated[float, Field(gt=0)] = 1.0
    epsilon: NotNegative = 0.0
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    max_relative_norm: NotNegative = 0.0

    requires: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.SINGLE_UPDATES, Capability.SHARED_CLUSTERS}
    )

    @model_validator(mode="after")
    def _agree(self) -> "AnonymitySets":
        k, x = self.min_anonymity, self.deniability_threshold
        if x > k:
            raise ValueError(
                f"deniability_threshold (x) is how many of an anonymity set's at least "
                f"min_anonymity (k) members must stay, so at most k = {k}, found x = {x}. "
                f"Lower x or raise k."
            )
        if self.min_organisations > k:
            raise ValueError(
                f"min_organisations is how many different organisations an anonymity set's "
                f"at least min_anonymity (k) members are of, so at most k = {k}, found "
                f"{self.min_organisations}. Lower it or raise k."
            )
        if self.noise != "sound":
            if self.epsilon > 0:
                raise ValueError(
                    f"epsilon is what noise = 'sound' keeps to, found noise = "
                    f"{self.noise!r}. Set noise = 'sound', or epsilon = 0."
                )
            return self
        if self.max_relative_norm > 0:
            raise ValueError(
                f"max_relative_norm bounds an update by what others sent, which noise = "
                f"'sound' does not account for, found {self.max_relative_norm:g}. Remove "
                f"it: radius bounds every update already."
            )
        blind = self.partition == "public-random" and self.distance == "l2"
        if not blind or self.max_distance > 0 or self.epsilon == 0:
            raise ValueError(
                f"noise = 'sound' needs partition = 'public-random', distance = 'l2', "
                f"max_distance = 0 and an epsilon above 0, found {self.partition!r}, "
                f"{self.distance!r}, {self.max_distance:g} and {self.epsilon:g}: sets and "
                f"distances that follow the updates tell of them. Set these."
            )
        return self

    def idle_options(self, section: str) -> Iterator[tuple[str, str]]:
        """Yield the options of noises that are not there."""
        for option, noises in (
            ("radius", ("paper", "sound")),
            ("delta", ("sound",)),
        ):
            if self.noise not in noises:
                yield option, reserved(f"{section}.noise", noises, self.noise)

    def claim(self, part: str) -> Claim:
        """Noise that is accounted for hides no weights: all count alike."""
        if self.noise != "sound":
            return Claim(part, self.requires, self.rules_out)
        return Claim(
            part,
            self.requires | {Capability.UNIFORM_WEIGHTS},
            self.rules_out | {Capability.EXAMPLE_COUNTS},
        )

    def anonymity(self) -> AnonymityTerms:
        """Return how clients are hidden among each other."""
        known = {"none": 0.0, "paper": self.radius}
        sound = self.noise == "sound"
        return AnonymityTerms(
            min_anonymity=self.min_anonymity,
            deniability_threshold=self.deniability_threshold,
            max_distance=self.max_distance,
            noise=known.get(self.noise),
            radius=self.radius if sound else 0.0,
            delta=self.delta if sound else 0.0,
            min_organisations=self.min_organisations,
        )

    def aggregate(
        self,
        models: tuple[Params, ...],
        updates: Iterable[ClientUpdate],
        streams: Streams,
    ) -> AggregationResult:
        """Move every cluster model by one perturbed update per anonymity set.

        No organisation is known: with `min_organisations` above 1 every cluster waits.
        """
        alone = FederationInfo(clients=0, organisations={})
        return self.prepared(alone)(models, updates, streams)

    def prepared(self, federation: FederationInfo) -> Aggregator:
        """Return the aggregation with as much noise as all rounds together need."""
        config = self._config(federation)
        if federation.organisations is not None:
            config = replace(
                config,
                min_organisations=self.min_organisations,
                organisations=federation.organisations,
            )
        hide = anonymity_aggregator(config)
        return self._bounding(hide) if self.max_relative_norm > 0 else hide

    def _config(self, federation: FederationInfo) -> AnonymityConfig:
        k = self.min_anonymity
        if self.noise == "sound":
            together = federation.shared and federation.participation == 1
            sizes = set_sizes(federation.clients, k) if together else (k,)
            z = federation.noise_multiplier(self.epsilon, self.delta, sizes)
            return dp_anonymity(k, L2Bound(self.radius, z))
        return AnonymityConfig(
            min_anonymity=k,
            partition=self.partition,
            distance=self.distance,
            max_distance=self.max_distance,
            noise=noise_scale(self.noise, self.distance, self.radius),
            # it compares all members, whose updates have to be here
            window=math.inf if self.noise == "released" else WINDOW,
        )

    def _bounding(self, hide: Aggregator) -> Aggregator:
        """Return the same aggregation, of updates that are shortened before."""

        def aggregate(
            models: tuple[Params, ...],
            updates: Iterable[ClientUpdate],
            streams: Streams,
        ) -> AggregationResult:
            short = bounded_by_median(tuple(updates), self.max_relative_norm)
            return hide(models, short, streams)

        return aggregate
