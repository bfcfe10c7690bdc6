"""covey from Python: the same runs, with a model and data that live in the program."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from covey.assembly import Assembled, Given, assemble
from covey.config import Config
from covey.data import Examples
from covey.errors import DataError, LedgerError, RunError
from covey.events import event_from
from covey.history import History
from covey.ledger import Ledger, current
from covey.report import summary, write_audit
from covey.simulation import (
    DEFAULT_ATTACKS,
    AuditRequest,
    Observer,
    RunFolder,
    audit_run,
    play,
    read_history,
)
from covey.simulation.canaries import audit_noise
from covey.simulation.copies import Copy
from covey.simulation.exports import export_model, latest_model
from covey.simulation.game import play_game
from covey.types import ClientName, Params
from covey.unlearning import ChainView, Check, latest_models, trusted_keys
from covey.unlearning import verify as check_proof

__all__ = [
    "Result",
    "audit",
    "audit_epsilon",
    "examples_of",
    "game",
    "load",
    "resume",
    "run",
    "verify",
]

Pair = tuple[Tensor, Tensor]
Clients = Mapping[ClientName, Pair] | Sequence[Pair]


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """A run that is on disk, as its events tell it."""

    folder: Path
    history: History
    ledger_head: str
    names: Mapping[ClientName, str]

    @property
    def summary(self) -> dict[str, Any]:
        """The object that `covey run --json` prints."""
        return {
            "run": str(self.folder),
            **summary(self.history),
            "ledger_head": self.ledger_head,
        }

    def cluster_of(self, client: ClientName) -> int:
        """Return the cluster that this client chose last.

        Raises:
            RunError: there is no such client, or it never chose.
        """
        j = self.history.assignment.get(self.names.get(client, ""))
        if j is None:
            raise RunError(
                f"No choice of a client {client!r} is recorded in {self.folder}. "
                f"Clients are named like {min(self.names, default='client-00000')!r}."
            )
        return j

    def params(self, cluster: int) -> Params:
        """Return a cluster's model, as `Module.load_state_dict` takes it.

        Raises:
            RunError: there is no such cluster, or no checkpoint yet.
        """
        return latest_model(RunFolder(self.folder), cluster)[1]

    def export(
        self, cluster: int, out: str | Path | None = None, recipient: str = ""
    ) -> Copy:
        """Write a cluster's model as safetensors, and put on record where and for whom.

        `covey forget` lists the record when a client leaves. A model that a program
        takes with `params` and writes itself is on no record.

        Args:
            cluster: its number.
            out: the file; None: one in `exports/` of the run's folder.
            recipient: for whom; it is named to who answers a request, and in proofs.

        Raises:
            RunError: there is no such model, or it cannot be written.
            ConfigError: the recipient is no line of text.
        """
        path = None if out is None else Path(out)
        return export_model(RunFolder(self.folder), cluster, path, recipient)


def run(
    model: Callable[[], nn.Module] | None = None,
    clients: Clients | None = None,
    config: Config | None = None,
    out: str | Path = "runs/python",
    observe: Observer = lambda _: None,
) -> Result:
    """Start a run in a new folder and play it to its end.

    Args:
        model: builds a fresh module; its class scores come out of `forward`, as logits
            or log-probabilities; for several labels a logit each; for a number one
            output. None: the network that the settings name.
        clients: (inputs, labels) per client, uint8 images or float features, with labels
            of the settings' `model.task`. None: the data set that the settings name.
        config: the settings.
        out: the new run's folder.
        observe: called after every round.

    Raises:
        CoveyError: something does not fit; nothing was written.
    """
    given = _given(model, clients)
    config = _named(config or Config(), given)
    assembled = assemble(config, given)
    return _played(assembled, RunFolder.create(Path(out), config), observe)


def resume(
    folder: str | Path,
    model: Callable[[], nn.Module] | None = None,
    clients: Clients | None = None,
    observe: Observer = lambda _: None,
) -> Result:
    """Carry a run on to its end, with the model and clients it was started with."""
    existing = RunFolder.existing(Path(folder))
    assembled = assemble(existing.config(), _given(model, clients))
    return _played(assembled, existing, observe)


def load(folder: str | Path) -> Result:
    """Read a run, finished or not, without its data."""
    existing = RunFolder.existing(Path(folder))
    with Ledger.read(existing.ledger) as ledger:
        return _result(existing, read_history(ledger), ledger)


def audit(  # noqa: PLR0913 - the last three have defaults that a run does not need
    folder: str | Path,
    attacks: Sequence[str] = DEFAULT_ATTACKS,
    references: int = 4,
    model: Callable[[], nn.Module] | None = None,
    clients: Clients | None = None,
    *,
    observe: Callable[[int, int], None] = lambda *_: None,
) -> dict[str, Any]:
    """Attack every final cluster model of a finished run.

    Args:
        folder: the run's; `audit/` in it is written anew.
        attacks: names as `covey audit --attack` takes them. Your own is
            `package.module:function`: it takes `Signals` and returns a score per record.
        references: federations of the run's own recipe, played again per cluster.
        model: what the run was started with, if that was passed by a program.
        clients: the same.
        observe: called with a cluster and how many of its references have been played.

    Returns:
        What audit.json holds. Figures are over records, with 95% intervals.

    Raises:
        CoveyError: something does not fit.
    """
    existing = RunFolder.existing(Path(folder))
    assembled = assemble(existing.config(), _given(model, clients))
    request = AuditRequest(tuple(attacks), references, observe)
    found = audit_run(assembled, existing, request)
    return write_audit(found, existing.path)


def audit_epsilon(
    folder: str | Path,
    model: Callable[[], nn.Module] | None = None,
    clients: Clients | None = None,
    draws: int = 10_000,
) -> dict[str, Any]:
    """Put a run's noise to the test: is one release's epsilon really delivered?

    Args:
        folder: the run's; nothing is written to it, and of its models nothing is read.
        model: what the run was started with, if that was passed by a program.
        clients: the same.
        draws: releases with a canary, and as many without.

    Returns:
        The accounted epsilon, and the one up to which all are refuted.

    Raises:
        CoveyError: the run adds no noise that is accounted for.
    """
    existing = RunFolder.existing(Path(folder))
    assembled = assemble(existing.config(), _given(model, clients))
    return asdict(audit_noise(assembled, draws))


def game(
    folder: str | Path,
    model: Callable[[], nn.Module] | None = None,
    clients: Clients | None = None,
    *,
    control: bool = False,
    observe: Observer = lambda _: None,
) -> dict[str, Any]:
    """Play the participation game on a finished run: who can tell who took part?

    Args:
        folder: the run's; nothing is written to it.
        model: what the run was started with, if that was passed by a program.
        clients: the same.
        control: play the run once more without up to 5 participants, and ask about them
            in both runs. It takes as long as the run did.
        observe: called after every round of the control.

    Returns:
        AUCs with 95% intervals over clients: of participants, and of those who left
        ("left", or None and "left_reason"), against reserved clients.

    Raises:
        CoveyError: something does not fit.
    """
    existing = RunFolder.existing(Path(folder))
    assembled = assemble(existing.config(), _given(model, clients))
    return asdict(play_game(assembled, existing, control=control, observe=observe))


def verify(
    proof: str | Path,
    run: str | Path | None = None,
    key: str | Path | None = None,
    mine: tuple[ClientName, str] | None = None,
) -> list[Check]:
    """Check a proof without the run's server, and against its ledger if that is given.

    Args:
        proof: the JSON file.
        run: the folder of the run that it speaks of.
        key: public keys of the signer, from elsewhere than the proof, as PEM.
        mine: the requester's name and the salt that it was given with the answer, to
            see that the proof is its own.
    """
    try:
        written = Path(proof).read_bytes()
        name_and_salt = (mine[0], bytes.fromhex(mine[1])) if mine else None
    except (OSError, ValueError) as error:
        raise RunError(
            f"A proof must be a file that can be read, and a salt hexadecimal, but: "
            f"{error}. Check what was given."
        ) from error
    trusted = trusted_keys(Path(key)) if key is not None else None
    chain = _chain(Path(run), written) if run is not None else None
    return check_proof(written, trusted, chain, name_and_salt)


def _chain(folder: Path, proof: bytes) -> ChainView:
    """Return the ledger that a proof speaks of, as it stood at the proof's position."""
    try:
        position = int(json.loads(proof)["ledger_events"])
    except (ValueError, TypeError, KeyError):
        position = 0  # no proof: its own checks say so
    with Ledger.read(RunFolder.existing(folder).ledger) as ledger:
        try:
            hashes, records = ledger.hashes(), current(ledger.replay()[:position])
        except LedgerError:
            return ChainView((), verified=False)
    story = [(r.round_index, event_from(r.kind, r.body)) for r in records]
    return ChainView(hashes, verified=True, head_model_hash=latest_models(story))


def _played(run: Assembled, folder: RunFolder, observe: Observer) -> Result:
    history = play(run, folder, observe)
    with Ledger.read(folder.ledger) as ledger:
        return _result(folder, history, ledger)


def _result(folder: RunFolder, history: History, ledger: Ledger) -> Result:
    names = {name: handle for handle, name in ledger.names().items()}
    return Result(folder.path, history, ledger.head(), names)


def _given(model: Callable[[], nn.Module] | None, clients: Clients | None) -> Given:
    if clients is None:
        return Given(model=model)
    if not isinstance(clients, Mapping):
        clients = {f"client-{index:05}": pair for index, pair in enumerate(clients)}
    return Given(
        model, {name: examples_of(name, pair) for name, pair in clients.items()}
    )


def examples_of(name: ClientName, pair: Pair) -> Examples:
    """Return a client's own tensors as examples.

    Raises:
        DataError: they do not fit together.
    """
    inputs, labels = pair
    if len(inputs) != len(labels) or labels.dim() not in (1, 2):
        raise DataError(
            f"{name} must bring inputs (examples, ...) and as many labels: whole numbers "
            f"(examples,) or (examples, labels), or floating-point numbers (examples,), "
            f"found {tuple(inputs.shape)} and {tuple(labels.shape)} of {labels.dtype}. "
            f"Correct its tensors."
        )
    if inputs.dtype != torch.uint8:
        inputs = inputs.float()
    labels = labels.float() if labels.is_floating_point() else labels.long()
    return Examples(inputs, labels)


def _named(config: Config, given: Given) -> Config:
    """Write into the settings what a program passes by hand."""
    settings = config.model_dump()
    if given.clients is not None:
        settings["data"]["name"] = "python"
    if given.model is not None:
        settings["model"]["name"] = "python"
    return Config.of(settings)
