"""Ledgers whose chain holds and whose events cannot be: sealed again by an attacker."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import command, sets
from support.resealed import Row, reseal, rows_of

TINY = sets(
    *("rounds=2", "population.clients=6", "population.examples_per_client=20"),
    "method.initialisation=random",
    *("population.audit_examples=20", "model.name=linear", "risk.every=1", "engine.name=reference"),
)
LEAVER, OTHER = "client-00003", "client-00001"


@pytest.fixture(scope="module")
def left(tmp_path_factory, once):
    """A small run that a client has left, only to be read: (folder, proof)."""

    def play(folder: Path) -> None:
        assert command("run", *TINY, "--out", folder / "run")[0] == 0
        code, _, err = command("forget", folder / "run", LEAVER, "--answer", "retrain")
        assert code == 0, err

    folder = once("odd events", play)
    (proof,) = (folder / "run" / "proofs").glob("*.json")
    return folder / "run", proof


def changed(row: Row, field: str, value: object) -> Row:
    t, kind, body = row
    return t, kind, json.dumps({**json.loads(body), field: value})


def of_kind(rows: list[Row], kind: str, rng: random.Random) -> int:
    return rng.choice([i for i, row in enumerate(rows) if row[1] == kind])


def wrong_type(rows: list[Row], rng: random.Random) -> None:
    i = rng.choice([i for i, row in enumerate(rows) if len(row[2]) > 2])
    rows[i] = changed(rows[i], rng.choice(sorted(json.loads(rows[i][2]))), [{"odd": [1]}])


def dropped_field(rows: list[Row], rng: random.Random) -> None:
    kinds = ("RunStarted", "ClientsAssigned", "CohortSampled", "RoundMeasured")
    i = of_kind(rows, rng.choice(kinds), rng)
    t, kind, body = rows[i]
    event = json.loads(body)
    del event[sorted(event)[0]]
    rows[i] = t, kind, json.dumps(event)


def no_table(rows: list[Row], rng: random.Random) -> None:
    i = rng.randrange(len(rows))
    odd = ("[]", "3", "null", "{", '"text"', "[" * 5000, '{"a": NaN}', "")
    rows[i] = (*rows[i][:2], rng.choice(odd))


def negative(rows: list[Row], rng: random.Random) -> None:
    fields = {"RunStarted": "num_clusters", "RiskMeasured": "cluster", "ClusterAudited": "cluster"}
    kind, field = rng.choice([*fields.items()])
    i = of_kind(rows, kind, rng)
    rows[i] = changed(rows[i], field, -rng.randrange(1, 9))


def unknown_cluster(rows: list[Row], rng: random.Random) -> None:
    i = of_kind(rows, "ClientsAssigned", rng)
    clusters = json.loads(rows[i][2])["clusters"]
    clusters[rng.choice(sorted(clusters))] = rng.choice([7, 1000, -1])
    rows[i] = changed(rows[i], "clusters", clusters)


def stranger(rows: list[Row], rng: random.Random) -> None:
    i = of_kind(rows, rng.choice(["ClientsAssigned", "ClientLeft", "ClientExposed"]), rng)
    event = json.loads(rows[i][2])
    if "handle" in event:
        rows[i] = changed(rows[i], "handle", "h-odd")
    else:
        rows[i] = changed(rows[i], "clusters", {**event["clusters"], "h-odd": 0})


def named_twice(rows: list[Row], rng: random.Random) -> None:
    i = of_kind(rows, "CohortSampled", rng)
    handles = json.loads(rows[i][2])["handles"]
    rows[i] = changed(rows[i], "handles", [*handles, rng.choice(handles)])


def no_cohort(rows: list[Row], rng: random.Random) -> None:
    del rows[of_kind(rows, "CohortSampled", rng)]


def no_round(rows: list[Row], rng: random.Random) -> None:
    i = of_kind(rows, rng.choice(["CohortSampled", "RunStarted"]), rng)
    rows[i] = (None, *rows[i][1:])


MUTATIONS: tuple[Callable[[list[Row], random.Random], None], ...] = (
    wrong_type,
    dropped_field,
    no_table,
    negative,
    unknown_cluster,
    stranger,
    named_twice,
    no_cohort,
    no_round,
)
READERS = ("verify", "explain", "report", "doctor")


def words_of(reader: str, folder: Path, proof: Path) -> list[object]:
    return {
        "verify": ["verify", proof, "--ledger", folder],
        "explain": ["explain", folder, OTHER],
        "report": ["report", folder],
        "doctor": ["ledger", "doctor", folder],
    }[reader]


def check_all(left: tuple[Path, Path], base: Path, count: int) -> None:
    """Read each odd ledger with one command; every kind meets every command in the end."""
    shutil.copytree(left[0], folder := base / "odd")
    shutil.rmtree(folder / "receipts")  # who can seal a ledger can delete these
    whole = rows_of(folder)
    for seed in range(count):
        mutate, rows = MUTATIONS[seed % len(MUTATIONS)], list(whole)
        mutate(rows, random.Random(seed))  # noqa: S311
        assert rows != whole
        reseal(folder, rows)
        reader = READERS[seed % len(READERS)]
        code, out, err = command(*words_of(reader, folder, left[1]))
        what, said = (reader, mutate.__name__, seed), out + err
        assert code in (1, 2), (what, said)
        assert "The ledger is broken at position" in said, (what, said)
        assert "Internal error" not in said, (what, said)
        assert "Traceback" not in said, (what, said)
        assert len(err.splitlines()) <= 1, (what, said)


def test_each_kind_of_odd_event_is_one_sentence_with_its_position(left, tmp_path):
    check_all(left, tmp_path, len(MUTATIONS))


@pytest.mark.slow
def test_each_kind_of_odd_event_is_refused_by_every_reader(left, tmp_path):
    check_all(left, tmp_path, len(READERS) * len(MUTATIONS))
