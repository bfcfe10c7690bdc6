"""Answers that are killed at random moments, again and again, until they are through.

    python tests/leaving/killing.py FOLDER KILLS SEED

prints what each answer ended in, as JSON, with the phase in which each kill left it.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

import covey
from covey.leaving.case import Case
from covey.ledger.store import Ledger
from covey.runs.folder import RunFolder
from covey.runs.ledger_terms import terms_of
from runs.left_runs import NARROW, SETTINGS, SUMS

STORED = {"aggregation": {"name": "mean"}, "leaving": {"store_updates": 1}}
KINDS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "deny": ({}, ["client-00003"]),
    "stop": ({}, ["client-00003"]),
    "roll_back": ({"aggregation": NARROW, "train": {"participation": 0.8}}, ["client-00003"]),
    "retrain": ({}, ["client-00001", "client-00003"]),
    "calibrate": (STORED, ["client-00003"]),
    "subtract": (SUMS, ["client-00001", "client-00003"]),
}


def begun(place: Path, kind: str) -> Path:
    """Play the run that clients are to leave."""
    torch.set_num_threads(1)
    folder = place / kind / "before"
    covey.run(config=covey.Config.of({**SETTINGS, **KINDS[kind][0]}), out=folder)
    return folder


def phase(folder: Path) -> str:
    """Return how far the case is, as the ledger says."""
    place = RunFolder(folder)
    place.reader.compare_with(terms_of(place.config()))
    with Ledger.read(folder / "ledger.sqlite") as ledger:
        place.reader.read(ledger)  # what a kill leaves stands before the grammar
        roster, last = ledger.roster(), ledger.last_round()
    if not roster.serving:
        return "requested" if roster.pending else "closed" if roster.requests else "none"
    case = Case.recorded(roster.serving)
    first, until = case.first, case.until
    if first is None or last is None or last < first:
        return "recorded"
    return "tidied" if last + 1 < until else "replayed"


def leave(folder: Path, kind: str) -> None:
    """Let the clients leave, or carry on what was begun."""
    torch.set_num_threads(1)
    run = covey.load(folder)
    if phase(folder) == "none":
        run.forget(KINDS[kind][1], kind)
    else:
        run.resume()


def end(folder: Path) -> dict[str, Any]:
    """Return what must be the same whenever it was killed; the grammar has read the ledger."""
    run = covey.load(folder)
    answers = sorted((departure.answer, departure.data_hash) for departure in run.history.left)
    proofs = sorted((folder / "proofs").glob("*.json"))
    return {
        "model": run.summary.model_hash,
        "rounds": len(run.history.rounds),
        "names": sorted(run.names),
        "answers": answers,
        "proofs": [run.verify(path).valid for path in proofs],
        "asides": [(folder / name).exists() for name in ("superseded", "subtracted")],
    }


def killed_run(before: Path, folder: Path, kind: str, kills: int, rng: random.Random, lasts: float):
    """Leave a copy of a run, killed so many times; return in which phases that was."""
    shutil.copytree(before, folder)
    phases: Counter[str] = Counter()
    done = 0
    while True:
        child = os.fork()
        if child == 0:
            os.dup2(os.open(folder.parent / "said", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
            leave(folder, kind)
            os._exit(0)
        until = time.monotonic() + rng.uniform(0.0, lasts)
        ended = (0, 0)
        while ended == (0, 0) and (done == kills or time.monotonic() < until):
            time.sleep(0.002)
            ended = os.waitpid(child, os.WNOHANG)
        if ended != (0, 0):
            if ended[1]:
                raise SystemExit((folder.parent / "said").read_text()[-3_000:])
            if done == kills or phase(folder) == "closed":
                return phases
            continue
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        done += 1
        phases[phase(folder)] += 1


def main(place: Path, kills: int, seed: int) -> None:
    """Kill every answer about as often, until there were so many kills."""
    rng = random.Random(seed)  # noqa: S311 - kills, not keys
    counts, phases = dict[str, Any](), Counter[str]()
    for kind in KINDS:
        before = begun(place, kind)
        whole = shutil.copytree(before, place / kind / "whole")
        began = time.monotonic()
        leave(whole, kind)
        lasts, expected = time.monotonic() - began, end(whole)
        here, runs, wrong = 0, 0, list[Any]()
        while here < kills / len(KINDS):
            folder = place / kind / f"run-{runs}"
            met = killed_run(before, folder, kind, rng.randint(1, 4), rng, lasts)
            here, runs = here + met.total(), runs + 1
            phases += met
            if (ends := end(folder)) != expected:
                wrong.append([str(folder), ends])
            shutil.rmtree(folder) if not wrong else None
        counts[kind] = {"kills": here, "runs": runs, "expected": expected, "wrong": wrong}
    print(json.dumps({"kinds": counts, "phases": phases}))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
