"""Do losses that cost nothing find the records that an attack with references exposes?

Reference federations are played by the run's own settings, each with half of the records.
Each is attacked in turn: half of the others are LiRA and say which of its members are
vulnerable, at a rate of wrong accusations; then others rank the members, and the most
exposed 1% by each should be vulnerable (Pollock et al., 2024, arXiv:2411.05743, section 4).
References that lie in `--out` are not played again.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy import ndarray

import covey
from benchmarks.playing import next_round, note
from covey import ScoringJob
from covey.algorithms.state import ClientMemory, loss_trace
from covey.base.files import replace_whole
from covey.data.examples import Client, Preference
from covey.membership.attacks import lira_online, logit
from covey.membership.references import halves, loss_drop, top_share
from covey.membership.truth import Candidates, strata_of
from covey.settings.run import BuiltRun, build_run


def precision_at(scores: np.ndarray, vulnerable: np.ndarray, share: float) -> float:
    """Return how many of the records with the highest scores are vulnerable, as a share.

    Vulnerable are the members that an attack says are members, at a low rate of
    non-members of which it says so too (the paper: LiRA, at 1 in 1000).
    """
    return float(vulnerable[top_share(scores, share)].mean())


SHARE, RATES = 0.01, (0.001, 0.01, 0.05)
LIRA, CHANCE = "LiRA, other references", "any member (chance)"
SMALL = {
    "rounds": 2,
    "population": {
        "clients": 4,
        "examples_per_client": 30,
        "minority_share": 0.25,
        "audit_examples": 100,
    },
    "model": {"name": "linear"},
    "method": {"name": "fedavg"},
    "train": {"keep_losses": True},
}


@dataclass(frozen=True, slots=True, eq=False)
class References:
    """What reference federations say of the records.

    Attributes:
        confidences: logit-scaled, under each final model; (records, models).
        inside: which record trained which model; (records, models).
        trained: the losses of each model's members when its training first drew them in a
            round, NaN for others; (records, models, rounds).
        received: the same under the model after each round, which has to be asked.
    """

    confidences: ndarray
    inside: ndarray
    trained: ndarray
    received: ndarray


def options(parser: ArgumentParser) -> None:
    """Add what this benchmark takes."""
    parser.add_argument("settings", type=Path, nargs="?", help="Settings, as a run has them.")
    parser.add_argument("--references", type=int, default=64, help="At least 8.")
    parser.add_argument("--out", type=Path, default=Path("references"))
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")


def measure(chosen: Namespace) -> dict[str, list[dict[str, object]]]:
    """Return, per score, the precision of its most exposed 1%, with standard errors."""
    usual = ["method.name=fedavg", "train.keep_losses=true", *chosen.overrides]
    if chosen.quick:
        run = build_run(covey.Config.of(SMALL))
        with TemporaryDirectory() as place:
            found = play_references(run, 8, Path(place))
    else:
        run = build_run(covey.load_config(chosen.settings, usual))
        found = play_references(run, chosen.references, chosen.out)
    rows: list[dict[str, object]] = []
    for score, by_rate in precisions(found).items():
        row: dict[str, object] = {"most exposed 1% by": score}
        for rate, each in by_rate.items():
            error = np.std(each, ddof=1) / np.sqrt(len(each))
            row[f"vulnerable at {rate:.1%} FPR"] = f"{np.mean(each):.3f} ± {error:.3f}"
        rows.append(row)
    return {f"{found.inside.shape[1]} models under attack": rows}


def precisions(known: References) -> dict[str, dict[float, list[float]]]:
    """Return, by score and rate, each model's precision at the most exposed 1%."""
    found: dict[str, dict[float, list[float]]] = {}
    for model in range(known.inside.shape[1]):
        others = [i for i in range(known.inside.shape[1]) if i != model]
        # by pairs: each pair has every record inside once
        judges = [i for i in others if i // 2 % 2 == 0]
        rankers = [i for i in others if i // 2 % 2 == 1]
        members = known.inside[:, model]
        judged = _lira(known, model, judges)
        scores = {**_scores(known, model), LIRA: _lira(known, model, rankers)[members]}
        outside = np.sort(judged[~members])[::-1]
        for rate in RATES:
            vulnerable = judged[members] > outside[int(rate * len(outside))]
            for name, score in scores.items():
                share = precision_at(score, vulnerable, SHARE)
                found.setdefault(name, {}).setdefault(rate, []).append(share)
            chance = found.setdefault(CHANCE, {}).setdefault(rate, [])
            chance.append(float(vulnerable.mean()))
    return found


def _lira(known: References, model: int, references: list[int]) -> ndarray:
    return lira_online(
        known.confidences[:, model], known.confidences[:, references], known.inside[:, references]
    )


def _scores(known: References, model: int) -> Mapping[str, ndarray]:
    """Return what can be told of the members from their losses, in several ways."""
    members = known.inside[:, model]
    trained, received = known.trained[members, model], known.received[members, model]
    final = received[:, -1]
    return {
        "minus the loss under the final model": -final,
        "mean loss in training": trained.mean(axis=1),
        "spread (LT-IQR), as training sees the losses": _spread(trained),
        "drop to the last loss, as training sees them": loss_drop(trained, trained[:, -1]),
        "drop to the loss under the final model": loss_drop(trained, final),
        "spread, of the model after each round": _spread(received),
        "drop, of the model after each round": loss_drop(received, final),
    }


def _spread(losses: ndarray) -> ndarray:
    low, high = np.quantile(losses, [0.25, 0.75], axis=1)
    return high - low


def play_references(run: BuiltRun, count: int, folder: Path) -> References:
    """Play so many references, but for those that lie in the folder, and return all."""
    streams = run.streams.at("record risk")
    records = Candidates.of(strata_of(run.population.clients, run.reference, streams))
    if records is None or any(len(each.background) for each in records.strata):
        raise SystemExit("Every member needs a non-member: more population.audit_examples.")
    folder.mkdir(parents=True, exist_ok=True)
    inside = halves(records, count + count % 2, streams)[:, :count]
    looks = np.full((2, *inside.shape, run.config.rounds), np.nan)
    confidences = np.empty(inside.shape)
    for i in range(count):
        path = folder / f"reference-{i:03d}.npz"
        if not path.is_file():
            file = BytesIO()
            np.savez_compressed(file, **_reference(run, records, inside[:, i], i))  # pyright: ignore[reportArgumentType]
            replace_whole(path, file.getvalue())
            note(f"reference {i} of {count}")
        with np.load(path) as kept:
            looks[:, kept["places"], i] = kept["trained"], kept["received"]
            confidences[:, i] = kept["confidences"]
    return References(confidences, inside, *looks)


def _reference(
    run: BuiltRun, records: Candidates, inside: ndarray, index: int
) -> dict[str, ndarray]:
    """Play one federation by the run's own settings, and ask its models about records."""
    at = run.streams.at("record risk", "reference", index)
    dealt = _dealt(records, inside, at)
    clients: list[Client] = []
    for i, places in enumerate(dealt):
        name, own = f"reference-{i:05d}", records.examples.take(places)
        clients.append(Client(name, name, None, own, own.first(0), Preference(0.0, 1.0)))
    there, members = run.with_clients(tuple(clients)), torch.cat(dealt)
    asked, seen = records.examples.take(members), list[ndarray]()
    state = there.algorithm.init(at)
    for _ in range(run.config.rounds):
        state = next_round(there, state, at)
        (scored,) = run.engine.score([ScoringJob(state.clusters[0], asked)])
        seen.append(scored.losses.double().numpy())
    kept = state.kept(ClientMemory).kept
    traces = [loss_trace(kept[each.handle]) for each in there.population.clients]
    (scored,) = run.engine.score([ScoringJob(state.clusters[0], records.examples)])
    assert scored.log_probs is not None
    found = logit(scored.log_probs.double().numpy(), records.labels)
    return {
        "places": members.numpy(),
        "received": np.stack(seen, axis=1).astype(np.float32),
        "trained": torch.cat([t for t in traces if t is not None], dim=1).T.numpy(),
        "confidences": found.astype(np.float32),
    }


def _dealt(records: Candidates, inside: ndarray, streams: covey.Streams) -> list[torch.Tensor]:
    """Return the places of each pseudo-client's records: sizes are the clients' own."""
    blocks: list[torch.Tensor] = []
    for place, stratum in enumerate(records.strata):
        own = np.flatnonzero(inside & (records.stratum == place))
        order = streams.at("dealt", place).generator().permutation(own)
        blocks += torch.from_numpy(order).split(list(stratum.sizes))
    return blocks
