"""Where a client's name and data are: each place is found, and nobody else named."""

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey import Config, run
from covey.data.source import DataProfile
from covey.ledger.store import Ledger
from covey.runtime.copies import Mention, record_copy
from covey.runtime.folder import FederationMetadata, RunFolder
from covey.runtime.places import Search, SearchTarget, search_places

NAMES = ("anna", "annabel", "bob", "carol", "dan", "eve")
YOU, COVEY = "you", "covey deletes it with forget"
names = st.text("abcdefgé-_ 1", min_size=1, max_size=8).map(lambda s: f"x{s}x")


@given(names, st.sampled_from(["", " ", "/", "-", '"', ".", "\n"]), names)
def test_a_name_is_found_by_itself_and_never_inside_a_longer_one(name, between, other):
    longer = f"{name}{other}"
    mention = Mention.of(name, {name, longer, other})
    assert mention.in_text(f"{between}{name}{between}")
    assert not mention.in_text(f"{between}{longer}{between}")
    assert not mention.in_text(f"y{name}") or name in other
    once = mention.masked(f"{longer}/{name}", "*")
    assert once == f"{longer}/*"


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b'["anna", "auto"]', True),
        (b"annabel\nhannah, annas", False),
        ("Zoë".encode(), True),
        (json.dumps("Zoë").encode(), True),
        (b"", False),
    ],
)
def test_a_file_mentions_a_name_however_it_is_spelt(tmp_path, content, found):
    path = tmp_path / "file"
    path.write_bytes(content)
    mentions = (Mention.of(name, NAMES).in_file(path) for name in ("anna", "Zoë"))
    assert any(mentions) is found


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """A run over files, with all that its settings lead to, and runs beside it."""
    top = tmp_path_factory.mktemp("world")
    data = top / "data"
    (data / "raw" / "anna").mkdir(parents=True)
    draws = np.random.default_rng(0)
    for name in NAMES:
        x = draws.normal(size=(12, 3)).astype("float32")
        np.savez(data / f"{name}.npz", x=x, y=draws.integers(0, 3, 12))
    (data / "list.csv").write_text("bob,1\nanna,2\n")
    (data / "others.csv").write_text("annabel,1\n")
    (top / "accepts.csv").write_text("name,risk_threshold\nanna,0.6\nbob,0.7\n")
    settings: dict[str, Any] = {
        "rounds": 1,
        "data": {"name": "npz", "dir": str(data)},
        "population": {"preferences": str(top / "accepts.csv"), "audit_examples": 0},
        "model": {"name": "mlp"},
        "method": {"name": "fedavg"},
        "risk": {"name": "none"},
        "engine": {"name": "reference"},
    }
    own = top / "runs" / "own"
    run(config=Config.of(settings), out=own)
    for other in ("runs/own/baseline", "runs/beside", "elsewhere/far"):
        shutil.copytree(own, top / other, ignore=shutil.ignore_patterns("baseline"))
    without = {**settings["population"], "exclude": ["anna"]}
    never = RunFolder.create(top / "runs" / "never", Config.of({**settings, "population": without}))
    assert not Ledger.exists(never.ledger)
    other_data = {"name": "npz", "dir": str(top / "other-data")}
    unlike = Config.of({**settings, "data": other_data})
    shutil.copytree(top / "runs" / "beside", top / "runs" / "unlike")
    (top / "runs" / "unlike" / "config.toml").write_text(unlike.toml())
    (top / "runs" / "broken").mkdir()
    (top / "runs" / "broken" / "config.toml").write_text("[")
    (own / "report.html").touch()
    (own / "notes.txt").write_text("anna called\n")
    RunFolder(own).queue_request("anna", "retrain")
    RunFolder(own).queue_request("bob", "retrain")
    return top


def sought(world: Path, name: str) -> SearchTarget:
    folder = RunFolder(world / "runs" / "own")
    with Ledger.read(folder.ledger) as ledger:
        handles = {name: handle for handle, name in ledger.names().items()}
    where, known = str(folder.ledger_path), frozenset(NAMES)
    return SearchTarget(folder, folder.settings(), where, name, handles[name], known, 0)


def found(world: Path, name: str) -> Search:
    return search_places(sought(world, name))


def acting(search: Search, world: Path, who: str) -> set[tuple[str, str]]:
    return {
        (str(Path(each.path).relative_to(world)), each.kind)
        for each in search.places
        if each.who_must_act == who
    }


def test_every_place_that_the_settings_lead_to_is_found(world):
    search = found(world, "anna")
    assert acting(search, world, COVEY) == {
        ("runs/own/ledger.sqlite", "ledger"),
        ("runs/own/asking", "request"),
        ("runs/own/checkpoints", "model"),
        ("runs/own/report.html", "page"),
        ("runs/own/baseline", "run"),
    }
    assert acting(search, world, YOU) == {
        ("runs/own/ledger.sqlite", "ledger"),
        ("runs/own/config.toml", "secret"),
        ("runs/own/notes.txt", "file"),
        ("data/anna.npz", "data"),
        ("data/raw/anna", "data"),
        ("data/list.csv", "data"),
        ("accepts.csv", "preferences"),
        ("runs/beside", "run"),
        ("runs/never/config.toml", "settings"),
    }


@pytest.mark.parametrize("name", ["anna", "bob"])
def test_nobody_else_is_named(world, name):
    search = found(world, name)
    told = " ".join(
        [*search.not_searched, *(" ".join(asdict(p).values()) for p in search.places)]
    ).replace(str(world), "")
    assert name in told
    for other in set(NAMES) - {name}:
        assert not Mention.of(other, NAMES).in_text(told), other


def test_what_could_not_be_searched_is_said(world, tmp_path):
    own = sought(world, "anna")
    said = " ".join(search_places(own).not_searched)
    assert str(world / "runs" / "broken") in said
    assert "Backups and snapshots" in said
    population = {**own.settings["population"], "preferences": "gone.csv"}
    data = {"name": "npz", "dir": str(tmp_path / "gone")}
    moved = {**own.settings, "data": data, "population": population}
    said = " ".join(search_places(replace(own, settings=moved)).not_searched)
    assert str(tmp_path / "gone") in said
    assert "gone.csv" in said


def test_a_deployments_folder_is_searched_and_the_nodes_machine_is_not(world, tmp_path):
    home, place = tmp_path / "home", tmp_path / "home" / "runs" / "own"
    shutil.copytree(world / "runs" / "own", place)
    for node in ("anna", "bob"):
        (home / "nodes" / node).mkdir(parents=True)
        (home / "nodes" / node / "node.toml").write_text(f"name = '{node}'\n")
    (home / "register.sh").write_text("register anna bob\n")
    (home / "server.sh").write_text("serve\n")
    profile = DataProfile((3,), images=False, classes=3)
    FederationMetadata("r", profile, str(home)).write(RunFolder(place))
    there = replace(sought(world, "anna"), folder=RunFolder(place))
    search = search_places(there)
    deployed = {p.path for p in search.places if p.kind == "deployment"}
    assert deployed == {str(home / "nodes" / "anna"), str(home / "register.sh")}
    said = " ".join(search.not_searched)
    assert "machine of the client's own node" in said
    assert "Flower's own database" in said


def test_copies_are_places_and_their_recipients_are_nobodys_business(world, tmp_path):
    place = tmp_path / "own"
    shutil.copytree(world / "runs" / "own", place)
    folder = RunFolder(place)
    more = {"recipient": "carol", "round_index": 1}
    record_copy(folder, "model", tmp_path / "for-carol", "0" * 64, **more)
    record_copy(folder, "model", tmp_path / "early", "0" * 64, round_index=0)
    record_copy(folder, "explanation", tmp_path / "page", subject="h-other")
    copies = [
        each
        for each in search_places(replace(sought(world, "anna"), folder=folder)).places
        if each.kind == "copy"
    ]
    (one,) = copies
    assert one.path == str(tmp_path / "for-[another client]")
    assert one.who_must_act == YOU
    assert "sent to a recipient on record" in one.what
