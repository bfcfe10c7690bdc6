"""The server's side of a federation on Flower, as a Flower app and from Python."""

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from covey import Config, History, Run, UnfinishedError, load, load_config
from covey.base.components import reference
from covey.base.names import FLOWERS_COMMAND, ClientName
from covey.ledger.store import Ledger
from covey.models.build import PassedModel
from covey.report.clients import describe_emptiness
from covey.report.queries import round_line
from covey.runs.folder import FederationMetadata, RunFolder
from covey.settings.aggregation import anonymity_of, noise_on_clients
from covey.settings.clients import Overrides
from covey.settings.run import build_run
from covey_flower.client import ModelFactory
from covey_flower.deployment import DECLARATION, Declaration
from covey_flower.engine import FlowerNodes, shared_settings_hash
from covey_flower.server import AdmissionPolicy, FlowerServer

log = logging.getLogger("covey.flower")

server_app = ServerApp()


@server_app.main()
def _main(grid: Grid, context: Context) -> None:
    """Play the run that the app's configuration names, or carry it on."""
    # covey's messages are logged through Flower's logger
    theirs, ours = logging.getLogger("flwr"), logging.getLogger("covey")
    ours.handlers, ours.level, ours.propagate = theirs.handlers, logging.INFO, False
    settings = {key: str(value) for key, value in context.run_config.items()}
    nodes = len(Declaration.read(Path(settings["config"]).parent).plan.invited)
    federated = Federated(settings["config"], timeout=float(settings["timeout"]))
    federated.start(grid, settings["out"], nodes)


@dataclass(frozen=True, slots=True)
class Federated:
    """A covey run whose clients are Flower nodes; it starts where a strategy would.

    Attributes:
        config: the settings, or their TOML file.
        model: builds a fresh module; None: the network that the settings name.
        invited: names of clients; empty: every node that the SuperLink lets in. Beside the
            settings of a deployment its list stands instead.
        timeout: seconds that a round waits for a node.
        binds_names: whether a client's name belongs to the key of the node that first came
            with it. Not where nodes have no keys that last (`--insecure`).
    """

    config: Config | str | Path
    model: ModelFactory | None = None
    invited: frozenset[ClientName] = frozenset()
    timeout: float = 600.0
    binds_names: bool = True

    def start(self, grid: Grid, out: str | Path, nodes: int = 2) -> Run:
        """Play the run in the folder `out` to its end; carry it on if it was begun.

        Waits until `nodes` nodes are there, less those that have left or ask to, but no longer
        than a round waits, if there are enough for one. Rounds keep their numbers over restarts.

        Raises:
            UnfinishedError: too few nodes came in time.
            CoveyError: something does not fit.
        """
        folder = self._folder(Path(out))
        config = folder.checked_config()
        # the folder of the deployment, if there is one
        home = "" if isinstance(self.config, Config) else str(Path(self.config).resolve().parent)
        roster = FederationMetadata.of(folder) or FederationMetadata(
            secrets.token_hex(8), None, home
        )
        hiding, plan = anonymity_of(config), config.privacy_plan
        keys, left, leaving = _ledger_facts(folder)
        terms = AdmissionPolicy(
            run=roster.run,
            settings_hash=shared_settings_hash(config),
            invited=self.invited,
            home=Path(home) if home and (Path(home) / DECLARATION).is_file() else None,
            timeout=self.timeout,
            compares_norms=not noise_on_clients(config),
            equal_weights=config.aggregation.weights == "equal" and not plan.weighs_by_budget,
            hides_sizes=plan.masks is not None,
            keys=keys,
            binds_names=self.binds_names,
        )
        federation = FlowerServer(grid, terms, roster.profile)
        first = hiding.min_anonymity if hiding and roster.profile is None else 1
        try:
            federation.gather(
                max(config.min_clients, first),
                lambda names: frozenset(names) - leaving,
                wanted=nodes - left - len(leaving),
            )
        except UnfinishedError:
            folder.discard()  # a new one, of which nothing is recorded
            raise
        replace(roster, profile=federation.profile).write(folder)
        parts = build_run(config, Overrides(model=self.model, client_backend=federation))
        run = Run(folder.path, parts=parts)
        run.resume(_report, on_answer=lambda done: log.info("%s", done.message))
        empty = describe_emptiness(run.history, config.stopping.empty_rounds)
        log.info(
            "%s. `covey report %s` shows it.",
            f"Failed: {empty}" if empty else "Finished",
            folder.path,
        )
        return load(folder.path)

    def _folder(self, out: Path) -> RunFolder:
        """Return the run's folder, a new one if there is none."""
        if (out / "config.toml").is_file():
            return RunFolder.existing(out)
        config = self.config
        if not isinstance(config, Config):
            config = load_config(config)
        names = {"engine": reference(FlowerNodes())}
        if self.model is not None:
            names["model"] = reference(PassedModel())
        folder = RunFolder.create(out, config.naming(**names))
        if not isinstance(self.config, Config):
            command = Path(self.config).resolve().parent / FLOWERS_COMMAND
            if command.is_file():
                folder.check_script(command, trust=True)
        return folder


def _ledger_facts(folder: RunFolder) -> tuple[Mapping[ClientName, str], int, frozenset[ClientName]]:
    """Return a run's keys of clients, how many have left, and who asks to leave.

    The run does not wait for the latter two.
    """
    if not Ledger.exists(folder.ledger):
        return {}, 0, frozenset()
    with Ledger.read(folder.ledger) as ledger:
        keys, left, names = ledger.keys(), len(ledger.roster().tombstones), ledger.names()
        pending = {r.handle for r in ledger.requests() if r.state == "pending"}
    words = {word.client for word in folder.queued_requests()}
    leaving = (name for h, name in names.items() if h in pending or name in words)
    return keys, left, frozenset(leaving)


def _report(history: History) -> None:
    """Log the latest round."""
    if history.rounds and history.finished is None:
        log.info("%s", round_line(history))
