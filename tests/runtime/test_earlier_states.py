"""Checkpoints as covey 0.1 wrote them: one table of everybody's memory.

Since then every component keeps a state of its own.
"""

import sqlite3
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from covey import RunError, resume
from covey.algorithms import (
    Clips,
    LastMoves,
    OwnRisks,
    PoolingShares,
    Prices,
    RiskEstimates,
    ServerState,
    SmoothedLosses,
    Stalled,
    Waiting,
)
from covey.checkpoints import save_checkpoint
from covey.events import RiskMeasured
from covey.membership import RiskEstimate
from covey.membership.shadow_federation import ShadowFederation, ShadowFederations
from covey.params import model_hash, prefixed
from covey.runtime.state_io import load_state, save_state

MODELS = tuple({"w": torch.tensor([float(j)])} for j in range(2))
SHADOWS = tuple({"w": torch.tensor([10.0 + place])} for place in range(3))
MEASURED = RiskMeasured(1, 4, "shadow", 0.6, 0.05, 0.55, 20, 30, True, "so")  # noqa: FBT003
ESTIMATE = RiskEstimate(0.6, 0.05, 0.55, 20, 30, True, "so", "shadow", 4)  # noqa: FBT003
EARLIER: dict[str, Any] = {
    "assignment": {"A": 0, "B": 1},
    "figures": [None, asdict(MEASURED)],
    # the second cluster's only shadow, then two of the first
    "shadows": [
        {"profile": [[0, 5], [1, 7]], "place": [1, 2, 0], "rounds": 3},
        {"profile": [[1, 6]], "place": [0, 4, 0], "rounds": 1},
        {"profile": [[1, 6]], "place": [0, 4, 1], "rounds": 1},
    ],
    "pooling": [0.25, 0.5],
    "releases": 1,
    "waiting": [0, 2],
    "closed": [1],
    "clips": [0.5, 0.75],
    "stalled": [0],
    "memory": {
        "moved": {"A": 3},
        "losses": {"A": [0.5, 1.5], "B": [2.5, 0.25]},
        "prices": [0.0, 0.125],
        "risks": {"A": [[0.7, 0.1, 4, True], None]},
    },
    "ledger_head": "a head",
}
NOTHING: dict[str, Any] = {
    "assignment": {},
    "figures": [None, None],
    "shadows": [],
    "pooling": [],
    "releases": 1,
    "waiting": [],
    "closed": [],
    "clips": [],
    "memory": {"moved": {}, "losses": {}, "prices": [], "risks": {}},
    "ledger_head": "",
}


def earlier(folder: Path, state: dict[str, Any]) -> Path:
    """Write a checkpoint of round 4 as covey 0.1 did."""
    shadows = prefixed(SHADOWS[: len(state["shadows"])], "shadow")
    return save_checkpoint(folder, 4, prefixed(MODELS, "cluster") | shadows, state)


def test_every_memory_of_an_earlier_checkpoint_is_a_components_state(tmp_path: Path):
    state, head = load_state(earlier(tmp_path, EARLIER))
    assert (state.round_index, head) == (5, "a head")
    assert model_hash(state.clusters) == model_hash(MODELS)
    assert state.assignment == {"A": 0, "B": 1}
    assert state.risk_estimates() == (None, ESTIMATE)
    assert state.kept(PoolingShares).shares == (0.25, 0.5)
    assert state.kept(Waiting) == Waiting(rounds=(0, 2), closed=frozenset({1}))
    assert state.kept(Clips).norms == (0.5, 0.75)
    assert state.kept(Stalled).clusters == {0}
    assert state.kept(LastMoves).rounds == {"A": 3}
    losses = state.kept(SmoothedLosses).losses
    assert losses == {"A": (0.5, 1.5), "B": (2.5, 0.25)}
    assert state.kept(Prices).prices == (0.0, 0.125)
    found = (RiskEstimate(0.7, 0.1, round_index=4, inside=True), None)
    assert state.kept(OwnRisks).risks == {"A": found}
    assert state.known_risks("A") == found


def test_shadows_are_those_of_their_clusters_with_their_models(tmp_path: Path):
    state, _ = load_state(earlier(tmp_path, EARLIER))
    clusters = state.kept(ShadowFederations).clusters
    first, second = clusters[0], clusters[1]
    assert [each.place for each in first] == [(0, 4, 0), (0, 4, 1)]
    assert [float(each.params["w"]) for each in (*first, *second)] == [11, 12, 10]
    (shadow,) = second
    assert (shadow.profile, shadow.rounds) == (((0, 5), (1, 7)), 3)


def test_a_checkpoint_from_before_stalls_were_kept_has_none(tmp_path: Path):
    state, _ = load_state(earlier(tmp_path, NOTHING))
    assert state.risk_estimates() == (None, None)
    assert state.kept(Stalled).clusters == frozenset()
    assert state.kept(Waiting) == Waiting()
    assert state.kept(ShadowFederations) == ShadowFederations()
    assert state.available() == (True, True)


def test_an_earlier_state_is_written_as_states_are_now(tmp_path: Path):
    state, head = load_state(earlier(tmp_path / "earlier", EARLIER))
    save_state(tmp_path / "now", state, head)
    (path,) = (tmp_path / "now").iterdir()
    again, _ = load_state(path)
    kinds = (
        RiskEstimates, OwnRisks, LastMoves, SmoothedLosses, Prices, PoolingShares,
        Waiting, Clips, Stalled,
    )  # fmt: skip
    for kind in kinds:
        assert again.kept(kind) == state.kept(kind) != kind()
    one, other = ([e.params for e in shadows_of(each)] for each in (state, again))
    assert model_hash(one) == model_hash(other)
    assert len(state.states) == len(kinds) + 1


def test_whoever_leaves_is_in_no_memory_of_an_earlier_checkpoint(tmp_path: Path):
    state = load_state(earlier(tmp_path, EARLIER))[0].without({"A"})
    assert state.assignment == {"B": 1}
    assert set(state.kept(SmoothedLosses).losses) == {"B"}
    assert state.kept(LastMoves).rounds == state.kept(OwnRisks).risks == {}


def test_models_in_releases_are_refused_in_a_sentence(tmp_path: Path):
    path = earlier(tmp_path, {**EARLIER, "releases": 3})
    with pytest.raises(RunError) as error:
        load_state(path)
    said = str(error.value)
    for part in (path.name, "came in releases", "'menu'", "cannot play", "new run."):
        assert part in said


def shadows_of(state: ServerState) -> list[ShadowFederation]:
    clusters = state.kept(ShadowFederations).clusters
    return [each for j in sorted(clusters) for each in clusters[j]]


def as_row(known: RiskEstimate | None) -> list[object] | None:
    if known is None:
        return None
    return [known.risk, known.standard_error, known.round_index, known.inside]


def as_before(state: ServerState, head: str) -> dict[str, Any]:
    """Return a state as covey 0.1 put it down, without its tensors."""
    known = state.kept(OwnRisks).risks
    figures = enumerate(state.risk_estimates())
    return {
        "assignment": dict(state.assignment),
        "figures": [each and asdict(each.event(j)) for j, each in figures],
        "shadows": [
            {"profile": each.profile, "place": each.place, "rounds": each.rounds}
            for each in shadows_of(state)
        ],
        "pooling": state.kept(PoolingShares).shares,
        "releases": 1,
        "waiting": state.kept(Waiting).rounds,
        "closed": sorted(state.kept(Waiting).closed),
        "clips": state.kept(Clips).norms,
        "stalled": sorted(state.kept(Stalled).clusters),
        "memory": {
            "moved": dict(state.kept(LastMoves).rounds),
            "losses": dict(state.kept(SmoothedLosses).losses),
            "prices": state.kept(Prices).prices,
            "risks": {handle: list(map(as_row, row)) for handle, row in known.items()},
        },
        "ledger_head": head,
    }


@pytest.mark.parametrize(
    "sections",
    [
        {"redteam": {"source": "shadow", "pool": 200, "shadows": 1, "every": 1}},
        {
            "method": {
                "selection": "priced",
                "target_share": 0.4,
                "initialisation": "groups",
                "hysteresis": 2,
                "smoothing": 0.5,
            },
            "redteam": {"every": 1, "source": "client"},
        },
    ],
    ids=["shadow", "priced"],
)
def test_a_run_goes_on_from_an_earlier_checkpoint_to_the_same_bits(play, cut, sections):
    expected = play(**sections)
    model, ledger = expected.summary["model_hash"], expected.ledger_head
    cut(expected.folder, 3)
    with sqlite3.connect(expected.folder / "ledger.sqlite") as database:
        database.execute("DELETE FROM states")  # which earlier ledgers do not have
    database.close()
    newest = sorted((expected.folder / "checkpoints").iterdir())[-1]
    state, head = load_state(newest)
    shadows = prefixed([each.params for each in shadows_of(state)], "shadow")
    tensors = prefixed(state.clusters, "cluster") | shadows
    save_checkpoint(
        newest.parent, state.round_index - 1, tensors, as_before(state, head)
    )
    resumed = resume(expected.folder)
    assert resumed.summary["model_hash"] == model
    assert resumed.ledger_head == ledger
