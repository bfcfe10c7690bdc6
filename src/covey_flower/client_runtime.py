"""A client's own half of a round, where the clients are remote."""

import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from covey import (
    ClientUpdate,
    Config,
    ConfigError,
    DataError,
    Engine,
    Params,
    Recipe,
    RiskContext,
    RiskEstimate,
    ScoringJob,
    ServerState,
    Streams,
)
from covey.aggregation.mean import count_of_numbers
from covey.algorithms.client_requests import ClientContext, ClientRequest
from covey.algorithms.redteam import due_to_measure, with_own_estimates
from covey.algorithms.selection import selection_inputs
from covey.algorithms.simulated import Simulated
from covey.algorithms.state import ClientMemory, ObjectiveInputs, OwnRisks, initial_state
from covey.base.names import Handle
from covey.base.params import model_hash, subtract
from covey.data.examples import Client
from covey.engine.fixed_features import LocalRecords
from covey.membership.estimators import own_counts
from covey.models.build import held_params
from covey.ridge.head import SentHead
from covey.ridge.sums import Sums
from covey.settings.aggregation import post_processors_of, summed_up
from covey.settings.algorithm import selection_config
from covey.settings.clients import Overrides, population_and_notes
from covey.settings.model import engine_of, model_of
from covey.settings.privacy import exposures_of
from covey.settings.risk import client_assessment_of
from covey.settings.schema import recipe_of
from covey_flower.memory import check_sent_again
from covey_flower.node_file import NodeFile

log = logging.getLogger("covey.flower")

KnownRisks = tuple[RiskEstimate | None, ...]


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """What a client decided, and what it rests on; only the cluster is sent.

    Attributes:
        known: its figure of each cluster's risk: from the server, or measured by itself.
    """

    cluster: int
    known: KnownRisks

    def above(self, risk_threshold: float) -> bool | None:
        """Say whether the risk is above what the client accepts; None: unknown."""
        known = self.known[self.cluster] if self.known else None
        return None if known is None else known.risk > risk_threshold


@dataclass(frozen=True, slots=True, eq=False)
class ClientRuntime:
    """One client with its own examples, preference and seed.

    Attributes:
        config: the federation's settings, as this client has them.
        classes: how many there are.
        seed: all that the client draws follows from it.
        records: its examples as fixed features, where the model has them.
        held: the model's parameters that do not train, and drawn ones that clients keep.
    """

    client: Client
    config: Config
    engine: Engine
    classes: int
    seed: int
    records: LocalRecords | None = None
    held: Params = field(default_factory=dict[str, Tensor])

    def agreeing(self, request: ClientRequest) -> "ClientRuntime":
        """Return the same client, whose frozen parameters are those of the server.

        Raises:
            ConfigError: they are others.
        """
        digest = model_hash([self.held]) if self.held else ""
        if digest != request.frozen:
            raise _others("The model's parameters that do not train", request.frozen, digest)
        return self

    def choose(
        self, request: ClientRequest, context: ClientContext, measured: KnownRisks = ()
    ) -> ClusterChoice:
        """Take a cluster: the assigned one, or the best by the method's rule (line 12).

        Args:
            request: what the server asks.
            context: what this client receives about itself.
            measured: what the client found out about the risks in earlier rounds.
        """
        known = (
            self._measured_risks(request, context, measured)
            if self.config.risk.on_clients
            else context.risks
        )
        if context.assigned is not None:
            return ClusterChoice(context.assigned, known)
        streams = self._streams(request)
        losses = self._losses(request, context, streams)
        if request.task == "place":
            return ClusterChoice(int(losses.nan_to_num(nan=torch.inf).argmin()), known)
        state = self._state(request, context, known)
        inputs = selection_inputs(state, (self.client,), losses, streams)  # of a cohort of one
        inputs = replace(inputs, available=torch.tensor(request.available))
        picked = selection_config(self.config, self.classes).select(inputs)
        return ClusterChoice(int(torch.as_tensor(picked)[0]), known)

    def features(self, request: ClientRequest) -> LocalRecords:
        """Return the client's features, which are those that the server means.

        Raises:
            ConfigError: they are others.
        """
        fingerprint = "none" if self.records is None else self.records.fingerprint
        if self.records is None or fingerprint != request.features:
            raise _others("The features of every client", request.features, fingerprint)
        return self.records

    def feature_sums(self, request: ClientRequest, context: ClientContext) -> Params:
        """Return the mean of the client's features in steps, or the sums over them.

        Raises:
            DataError: the sums are others than the ones that are to be taken off again.
        """
        records = self.features(request)
        if request.task == "mean":
            return {"mean": records.mean(self.client.train)}
        sums = self.sums(request)
        if context.digest:
            check_sent_again(context.digest, sums.digest())
        return {"gram": sums.gram, "targets": sums.targets}

    def sums(self, request: ClientRequest) -> Sums:
        """Return the sums over the client's records."""
        return self.features(request).sums([self.client.train], request.width)

    def own_noise(self, request: ClientRequest) -> Streams:
        """Return the streams of the noise that this client adds by itself."""
        return self._streams(request).at("own noise", self.client.name)

    def _losses(
        self, request: ClientRequest, context: ClientContext, streams: Streams
    ) -> Float[Tensor, "clients clusters"]:
        """Return the loss of every model, or of every head as if the client were not."""
        if context.shares:
            records, train = self.features(request), self.client.train
            roots = request.roots
            heads = [SentHead.of(model, roots.get(j)) for j, model in enumerate(request.models)]
            return records.losses_without_client(train, heads, context.shares)[None]
        return self._alone(recipe_of(self.config)).evaluate(request.models, (self.client,), streams)

    def _alone(
        self, recipe: Recipe, exposures: Mapping[Handle, float] = MappingProxyType({})
    ) -> Simulated:
        """Return the federation of this client alone."""
        weights, compares_on = self.config.aggregation.weights, self.config.method.compares_on
        noisy = self.config.privacy_plan.clients_add_noise
        return Simulated(self.engine, recipe, weights, compares_on, exposures, adds_noise=noisy)

    def train(
        self,
        request: ClientRequest,
        cluster: int,
        train_model: Callable[[ClientRequest, int], Params] | None = None,
        memory: Mapping[str, Params] = MappingProxyType({}),
    ) -> ClientUpdate:
        """Return what the client's training adds to a model (line 14).

        Args:
            request: what the server asks.
            cluster: whose model is trained.
            train_model: trains in place of the settings' recipe: returns the local model.
            memory: what the client kept for its objective.

        Raises:
            ConfigError: the recipe keeps something that `train_model` does not return, or sums
                gradients.
        """
        weights, handle = self.config.aggregation.weights, self.client.handle
        recipe = recipe_of(self.config).with_numbers(request.recipe)
        size = count_of_numbers(request.models[cluster]) - 1
        exposures = exposures_of(self.config.privacy_plan, (self.client,), size)
        if exposures.get(handle) == 0:
            log.warning("This client accepts no risk above 0.5: it adds nothing to the model.")
        if train_model is not None and (recipe.sums_gradients or recipe.keeps_memory):
            needed = "what the settings' algorithm or objective keeps from round to round"
            if recipe.sums_gradients:
                needed = "sums of clipped gradients (privacy.record_clip)"
            raise ConfigError(
                f"Clients must return {needed}, found a training function of your own: change that "
                f"setting, or train as the settings say (covey_flower.client.client_app)."
            )
        if train_model is not None:
            weight = 1.0 if weights == "equal" else float(len(self.client.train))
            models, start = list(request.models), request.models[cluster]
            models[cluster] = {**start, **self.held}  # a function of one's own sees the whole
            local = train_model(replace(request, models=tuple(models)), cluster)
            update = subtract({name: local[name] for name in start}, start)
            own = self.own_noise(request)
            made = ClientUpdate(handle, cluster, update, weight, streams=own)
            return self._hidden(made, exposures)
        inputs = ObjectiveInputs(ClientMemory(kept={handle: memory}), request.broadcast)
        (made,) = self._alone(recipe, exposures).train(
            request.models, (self.client,), {handle: cluster}, self._streams(request), inputs
        )
        return self._hidden(made, exposures)

    def _hidden(self, made: ClientUpdate, exposures: Mapping[Handle, float]) -> ClientUpdate:
        """Return the update as it leaves the client: clipped and noised, where that is its own."""
        plan = self.config.privacy_plan
        if plan.clients_add_noise:
            for process in post_processors_of(plan, exposures):
                made = process(made)
        return made

    def count(
        self, request: ClientRequest, cluster: int
    ) -> tuple[Int[ndarray, "folds bins"], Int[ndarray, "folds bins"]]:
        """Return counts of the losses on the client's members, and on its holdout."""
        params = request.models[cluster]
        return own_counts(self.engine, params, self.client, self._streams(request))

    def accuracy(self, params: Params) -> float | None:
        """Return a model's accuracy on the client's holdout; None without one."""
        holdout = self.client.holdout
        if not len(holdout):
            return None
        (scored,) = self.engine.score([ScoringJob(params, holdout)])
        return scored.accuracy

    def _streams(self, request: ClientRequest) -> Streams:
        """Return the client's draws for a question.

        Hidden ones are drawn anew for every answer where secrets are the system's: a round
        that is played again has the same path, and the same noise in two answers cancels.
        """
        anew = self.config.secrets.source == "os"
        return Streams(self.seed, request.path, secrets.randbits(256) if anew else None)

    @property
    def reports_size(self) -> bool:
        """Whether answers reveal how many examples it has: by weight, counts or sums."""
        if self.config.privacy_plan.masks:
            return False
        revealing = summed_up(self.config) & {"sums", "counts"}
        return bool(revealing) or self.config.aggregation.weights == "examples"

    def _measured_risks(
        self, request: ClientRequest, context: ClientContext, measured: KnownRisks
    ) -> KnownRisks:
        """Return the client's figures; it measures when it is time, and at the end."""
        if request.task not in ("choose", "reassign", "compare") or request.round_index == 0:
            return measured
        every, this_client = self.config.risk.every, (self.client,)
        state = self._state(request, context, measured)
        due = (
            this_client if request.task == "reassign" else due_to_measure(state, this_client, every)
        )
        streams = self._streams(request)
        judge = client_assessment_of(self.config, RiskContext(self.engine))
        judged = judge(request.models, due, streams)
        after = with_own_estimates(state, judged, every)
        return after.get_state(OwnRisks).risks.get(self.client.handle, ())

    def _state(
        self, request: ClientRequest, context: ClientContext, known: KnownRisks
    ) -> ServerState:
        """Return the part of a state that is this client's own."""
        handle = self.client.handle
        return replace(
            initial_state(request.models),
            round_index=request.round_index,
            assignment={handle: context.current} if context.current >= 0 else {},
        ).with_state(OwnRisks(risks={handle: known} if known else {}))


def _others(what: str, expected: str, found: str) -> ConfigError:
    return ConfigError(
        f"{what} must be the server's, with hash {expected[:12] or 'none'}, found "
        f"{found[:12] or 'none'}: give the model, the settings' seed and any code and weights of "
        f"your own the server's version."
    )


def client_runtime_of(
    config: Config, own: NodeFile, overrides: Overrides, classes: int = 0
) -> ClientRuntime:
    """Return one client's half of a federation, with no one else's data.

    Args:
        config: the federation's settings.
        own: what the client keeps on its own side.
        overrides: its model and its examples, where they are not named in the settings.
            Where the settings name a data set, the client is the one of that name in the
            population that they simulate: for trying things out.
        classes: how many the federation has; 0: as many as its own examples show.

    Raises:
        CoveyError: some part does not fit.
    """
    if own.holdout is not None:
        changed = config.population.model_copy(update={"holdout": own.holdout})
        config = config.model_copy(update={"population": changed})
    streams = Streams(config.seed if overrides.clients is None else own.seed)
    population, _ = population_and_notes(config, overrides.clients, streams)
    if population.layout is not None:
        raise DataError(
            f"A client on a machine of its own must bring one tensor of inputs, found "
            f"{population.layout}: simulate, or join them in one tensor that the model parts."
        )
    classes = classes or population.num_classes
    population = replace(population, num_classes=classes)
    client = next((c for c in population.clients if c.name == own.name), None)
    if client is None:
        raise DataError(
            f"name must be one of {len(population.clients)} simulated clients, such as "
            f"{population.clients[0].name!r}, found {own.name!r}: correct it, or name data."
        )
    module, _ = model_of(config, overrides, population)
    preference = own.preference or client.preference
    limit = own.epsilon_limit or preference.epsilon_limit
    client = replace(client, preference=replace(preference, epsilon_limit=limit))
    engine, records = engine_of(config, module, population)
    held = held_params(module, config.model.personal)
    return ClientRuntime(client, config, engine, classes, own.seed, records, held)
