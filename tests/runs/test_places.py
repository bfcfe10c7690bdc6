"""Where a client's name and data are: what covey wrote and settings name, and nobody else."""

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
from covey.leaving.copies import Mention, record_copy
from covey.leaving.places import ClientOfRun, PlaceList, places_of, recipients_of
from covey.ledger.store import Ledger
from covey.runs.folder import FederationMetadata, RunFolder

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


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """A run over files, with its baseline, a page and requests, beside a copy of it."""
    top = tmp_path_factory.mktemp("world")
    data = top / "data"
    data.mkdir()
    draws = np.random.default_rng(0)
    for name in NAMES:
        x = draws.normal(size=(12, 3)).astype("float32")
        np.savez(data / f"{name}.npz", x=x, y=draws.integers(0, 3, 12))
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
    for other in ("runs/own/baseline", "runs/beside"):
        shutil.copytree(own, top / other, ignore=shutil.ignore_patterns("baseline"))
    (own / "report.html").touch()
    (own / "notes.txt").write_text("anna called\n")
    RunFolder(own).queue_request("anna", "retrain")
    RunFolder(own).queue_request("bob", "retrain")
    return top


def of_run(world: Path, name: str) -> ClientOfRun:
    folder = RunFolder(world / "runs" / "own")
    with Ledger.read(folder.ledger) as ledger:
        handles = {name: handle for handle, name in ledger.names().items()}
    where, known = str(folder.ledger_path), frozenset(NAMES)
    return ClientOfRun(folder, folder.settings(), where, name, handles[name], known, 0)


def acting(listed: PlaceList, world: Path, actor: str) -> set[tuple[str, str]]:
    return {
        (str(Path(place.path).relative_to(world)), place.kind)
        for place in listed.places
        if place.who_must_act == actor
    }


def test_what_covey_wrote_and_what_settings_name_is_listed_and_nothing_else(world):
    listed = places_of(of_run(world, "anna"))
    assert acting(listed, world, COVEY) == {
        ("runs/own/ledger.sqlite", "ledger"),
        ("runs/own/asking", "request"),
        ("runs/own/checkpoints", "model"),
        ("runs/own/report.html", "page"),
        ("runs/own/baseline", "run"),
    }
    assert acting(listed, world, YOU) == {
        ("runs/own/ledger.sqlite", "ledger"),
        ("runs/own/config.toml", "secret"),
        ("data/anna.npz", "data"),
        ("accepts.csv", "preferences"),
    }


@pytest.mark.parametrize("name", ["anna", "bob"])
def test_nobody_else_is_named(world, name):
    listed = places_of(of_run(world, name))
    sentences = " ".join(
        [*listed.not_listed, *(" ".join(asdict(p).values()) for p in listed.places)]
    ).replace(str(world), "")
    assert name in sentences
    for other in set(NAMES) - {name}:
        assert not Mention.of(other, NAMES).in_text(sentences), other


def test_of_a_federation_the_deployment_is_listed_and_the_nodes_machine_is_not(world, tmp_path):
    home, place = tmp_path / "home", tmp_path / "home" / "runs" / "own"
    shutil.copytree(world / "runs" / "own", place)
    profile = DataProfile((3,), images=False, classes=3)
    FederationMetadata("r", profile, str(home)).write(RunFolder(place))
    listed = places_of(replace(of_run(world, "anna"), folder=RunFolder(place)))
    assert [p.path for p in listed.places if p.kind == "deployment"] == [str(home)]
    said = " ".join(listed.not_listed)
    assert "machine of the client's own node" in said
    assert "Flower's own database" in said


def test_recipients_are_named_by_the_record_and_nodes_as_a_category(world, tmp_path):
    home, place = tmp_path / "home", tmp_path / "home" / "runs" / "own"
    shutil.copytree(world / "runs" / "own", place)
    folder = RunFolder(place)
    record_copy(folder, "model", tmp_path / "a", "0" * 64, recipient="carol's lab", round_index=1)
    record_copy(folder, "model", tmp_path / "b", "1" * 64, recipient="too early", round_index=0)
    record_copy(folder, "report", tmp_path / "c", "2" * 64)
    anna = replace(of_run(world, "anna"), folder=folder)
    assert [recipient.recipient for recipient in recipients_of(anna)] == ["[another client]'s lab"]
    profile = DataProfile((3,), images=False, classes=3)
    FederationMetadata("r", profile, str(home)).write(folder)
    assert "the nodes of the deployment" in [*recipients_of(anna)][-1].recipient
    assert not [*recipients_of(replace(anna, first_round=None))]


def test_copies_are_places_and_their_recipients_are_nobodys_business(world, tmp_path):
    place = tmp_path / "own"
    shutil.copytree(world / "runs" / "own", place)
    folder = RunFolder(place)
    more = {"recipient": "carol", "round_index": 1}
    record_copy(folder, "model", tmp_path / "for-carol", "0" * 64, **more)
    record_copy(folder, "model", tmp_path / "early", "0" * 64, round_index=0)
    record_copy(folder, "explanation", tmp_path / "page", subject="h-other")
    listed = places_of(replace(of_run(world, "anna"), folder=folder))
    (one,) = [one_place for one_place in listed.places if one_place.kind == "copy"]
    assert one.path == str(tmp_path / "for-[another client]")
    assert one.who_must_act == YOU
    assert "sent to a recipient on record" in one.what
    assert not [one_place for one_place in listed.places if one_place.kind == "record"]
    its = places_of(replace(of_run(world, "carol"), folder=folder)).places
    assert [one_place.path for one_place in its if one_place.kind == "record"] == [
        str(folder.copies)
    ]
