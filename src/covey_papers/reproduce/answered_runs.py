"""What leaving costs: the second paper's experiment, setting by setting.

Fifty clients train together, and after each round one of them may ask to leave. FedAvg
trains again from the leaver's first round on, FedEraser calibrates what it stored, and
anonymity sets deny while they can. Each setting is a run in a folder of its own, so that a
stopped experiment goes on where it was.

References:
    Varshney, Torra, Efficient Federated Unlearning under Plausible Deniability, 2024,
    Tables 1, 2 and 4, Figure 4.
"""

import shutil
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from covey import Config, Run
from covey.leaving.case import play
from covey.leaving.plan import cheapest, options
from covey.leaving.planning import current_rules
from covey.ledger.requests import LeaveRequest
from covey.ledger.store import Ledger
from covey.runs.folder import RunFolder
from covey.runs.session import Session
from covey.settings.aggregation import anonymity_of
from covey_papers.reproduce.specification import Experiment, in_layers

Settings = Mapping[str, Any]


MEAN: Settings = {"name": "mean"}

BASELINES: Mapping[str, Settings] = {
    "retrain": {"aggregation": MEAN},
    "federaser": {"aggregation": MEAN, "leaving": {"store_updates": 1}},
}
"""What each baseline sets, in place of anonymity sets."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one setting ended.

    Attributes:
        answers: requests by their answer: a denial costs a decision, the others rounds.
        seconds: per request, from the answer's first record to the signed proof.
        server_bytes: states, stored updates and ledger at the end.
        shared_with: the setting whose run it is, where both answered every request alike.
    """

    name: str
    k: int | None
    x: int | None
    accuracy: float | None
    answers: Mapping[str, int]
    seconds: tuple[float, ...]
    server_bytes: int
    shared_with: str = ""


def outcomes(experiment: Experiment, base: Settings, seed: int, out: Path) -> tuple[Outcome, ...]:
    """Play every baseline, k and x, or read it where it lies in the folder already.

    Args:
        experiment: names them.
        base: the settings that all its runs share.
        seed: of them all.
        out: the folder.
    """
    played: list[Outcome] = []
    for name in experiment.baselines:
        settings = in_layers(base, BASELINES[name], {"seed": seed})
        played.append(_played(out / name, Config.of(settings), {}))
    first, *later = experiment.x
    for k in experiment.k:  # all x of one k part at the first request answered otherwise
        hidden: list[Outcome] = []
        for x in (first, *later):
            folder = out / f"k{k}-x{x}"
            if x == first or (folder / "config.toml").is_file():
                rest = {y: out / f"k{k}-x{y}" for y in later if y > x}
                sets = {"name": "anonymity-sets", "min_anonymity": k, "deniability_threshold": x}
                config = Config.of(in_layers(base, {"seed": seed, "aggregation": sets}))
                hidden.append(_played(folder, config, rest))
            else:
                hidden.append(replace(hidden[0], name=folder.name, x=x, shared_with=hidden[0].name))
        played += hidden
    return tuple(played)


def _played(path: Path, config: Config, others: Mapping[int, Path]) -> Outcome:
    """Play one setting to its end; settings that part from it start from its folder."""
    run = Run.of(path, config)

    def before_answer(session: Session, request: LeaveRequest) -> None:
        hidden = anonymity_of(config)
        own = _answer(session, request, hidden.deniability_threshold if hidden else 1)
        for x, other in others.items():
            if not other.exists() and _answer(session, request, x) != own:
                _fork(path, other, x)

    with run.open() as session:
        play(session, before_answer=before_answer)
    return _outcome(RunFolder(path), config)


def _answer(session: Session, request: LeaveRequest, x: int) -> tuple[str, int | None]:
    record = session.record
    rules = current_rules(session.run.config, session.folder, record.history, x)
    chosen = cheapest(options(record.participation, request.handle, rules), request.wanted)
    return chosen.answer, chosen.first_replayed_round


def _fork(path: Path, other: Path, x: int) -> None:
    """Copy a run as it stands, and let the copy go on with another x."""
    unfinished = other.with_name(f"{other.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.copytree(path, unfinished)
    text = (path / "config.toml").read_text(encoding="utf-8")
    settings = tomllib.loads(text)
    settings["aggregation"]["deniability_threshold"] = x
    (unfinished / "config.toml").write_text(Config.of(settings).toml(), encoding="utf-8")
    unfinished.rename(other)


def _outcome(folder: RunFolder, config: Config) -> Outcome:
    def seconds(request: LeaveRequest) -> float:
        stamps = request.served_at, request.answered_at
        began, ended = (datetime.fromisoformat(stamp or request.requested_at) for stamp in stamps)
        return (ended - began).total_seconds()

    with Ledger.read(folder.ledger) as ledger:
        history, requests = folder.reader.read(ledger).history, ledger.requests()
    hidden = anonymity_of(config)
    done = [listed for listed in requests if listed.state == "done"]
    folders = [folder.checkpoints, folder.updates]
    files = [path for place in folders for path in place.glob("*.safetensors")]
    return Outcome(
        name=folder.path.name,
        k=hidden.min_anonymity if hidden else None,
        x=hidden.deniability_threshold if hidden else None,
        accuracy=history.finished.accuracy if history.finished else None,
        answers=dict(Counter(str(listed.answer) for listed in done)),
        seconds=tuple(map(seconds, done)),
        server_bytes=sum(path.stat().st_size for path in [*files, folder.ledger_path]),
    )
