"""Runs with noise: what reaches the ledger, what is carried on, and who came in secret."""

import shutil
from typing import TypeVar

import numpy as np
import pytest
import torch

import recorded
from covey import ModelError, Streams, resume, run
from covey.base.events import (
    AnonymitySetsFormed,
    ChoicesPerturbed,
    ClientsAssigned,
    CohortSampled,
    Event,
    ModelsMerged,
    RepresentativesPerturbed,
    RiskMeasured,
    SumPerturbed,
)
from covey.dp.run_guarantees import representative_noise
from covey.runtime.folder import RunFolder, rounds_in

FEDAVG = {"name": "fedavg"}
QUIET = {"name": "none"}
NO_AUDIT = {"audit_examples": 0}
Kind = TypeVar("Kind", bound=Event)
NOISY = {"client_clip": 0.5, "client_noise": 0.25}
SOUND = {
    "name": "anonymity-sets",
    "noise": "sound",
    "partition": "public-random",
    "min_anonymity": 2,
    "deniability_threshold": 2,
    "radius": 0.5,
    "epsilon": 8.0,
}


@pytest.fixture(autouse=True)
def own_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def facts(result, kind: type[Kind]) -> list[Kind]:
    return recorded.facts(result.folder, kind)


@pytest.fixture
def quick(play):
    """Play without an audit at the end, and without a red team unless one is named."""

    def played(**sections):
        return play(**{"population": NO_AUDIT, "risk": QUIET, **sections})

    return played


@pytest.mark.parametrize(
    ("sections", "sizes"),
    [({}, (2, 2, 2)), ({"train": {"participation": 0.9}}, (2,))],
    ids=["everybody", "sampled"],
)
def test_sound_noise_is_what_epsilon_takes(quick, sections, sizes):
    result = quick(**{"aggregation": SOUND, "method": FEDAVG, **sections})
    told = facts(result, RepresentativesPerturbed)
    formed = facts(result, AnonymitySetsFormed)
    assert [each.sizes for each in told] == [tuple(map(len, each.sets)) for each in formed]
    assert all(set(each.diameters) == {None} for each in formed)
    z = representative_noise(8.0, 1e-5, 4, sizes)
    assert {(e.radius, e.noise_multiplier) for e in told} == {(0.5, z)}


def test_sets_of_unequal_size_take_more_noise(quick):
    result = quick(aggregation=SOUND, method=FEDAVG, population={**NO_AUDIT, "clients": 7})
    told = facts(result, RepresentativesPerturbed)
    assert {tuple(sorted(each.sizes)) for each in told} == {(2, 2, 3)}
    z = representative_noise(8.0, 1e-5, 4, (3, 2, 2))
    assert {each.noise_multiplier for each in told} == {z}


def test_sums_are_hidden_and_survive_a_restart(quick, tmp_path):
    result = quick(privacy=NOISY)
    told = facts(result, SumPerturbed)
    assert {(each.noise_multiplier, each.sampling) for each in told} == {(0.25, 1.0)}
    assert {len(each) for each in cohorts(result)} == {6}
    cut = tmp_path / "cut"
    shutil.copytree(result.folder, cut)
    folder = RunFolder(cut).checkpoints
    assert rounds_in(folder) == (0, 1, 2, 3)
    for t in (2, 3):
        (folder / f"round-{t:05d}.safetensors").unlink()
    resume(cut)  # replayed rounds are compared with what is recorded
    last = "round-00003.safetensors"
    before = (RunFolder(result.folder).checkpoints / last).read_bytes()
    assert (folder / last).read_bytes() == before


def cohorts(result) -> list[set[str]]:
    """Who took part, round by round, by name."""
    names = {handle: name for name, handle in result.names.items()}
    return [{names[h] for h in each.handles} for each in facts(result, CohortSampled)]


def test_who_came_is_hidden_where_privacy_rests_on_it(quick):
    sections = {"method": FEDAVG, "train": {"participation": 0.5}}
    public = quick(**sections)
    private = quick(**sections, privacy=NOISY)
    secret = quick(**sections, privacy=NOISY, secrets={"source": "os"})
    told = facts(private, SumPerturbed)
    assert [each.sampling for each in told] == [0.5] * 4  # where nobody came, too
    assert {each.clip for each in told} == {0.5}
    # two of them are equal by chance with 2^-24
    assert cohorts(public) != cohorts(private)
    assert cohorts(secret) != cohorts(private)


@pytest.mark.parametrize(
    "sections",
    [
        {"method": FEDAVG, "privacy": NOISY, "train": {"participation": 0.5}},
        {"method": FEDAVG, "aggregation": SOUND},
        {
            "method": {"name": "ifca", "initialisation": "random"},
            "privacy": {"record_clip": 1.0, "record_noise": 1.0, "selection_noise": 4.0},
        },
    ],
    ids=["coins-sums", "speakers-representatives", "batches-gradients-choices"],
)
def test_no_secret_draw_comes_from_numpy(quick, monkeypatch, sections):
    right = Streams.generator

    def refusing(streams: Streams) -> np.random.Generator:
        if streams.path[0] == "hidden":
            raise AssertionError(streams.path)
        return right(streams)

    monkeypatch.setattr(Streams, "generator", refusing)
    quick(**sections, secrets={"source": "os"}, rounds=1)
    with pytest.raises(AssertionError, match="hidden"):
        quick(**sections, rounds=1)


@pytest.mark.parametrize(
    "method", [{"name": "ifca"}, {"name": "ifca-mir"}], ids=["ifca", "weighted"]
)
def test_every_choice_is_told_the_last_one_too(quick, method):
    result = quick(
        method={**method, "initialisation": "random"},
        privacy={"selection_noise": 4.0},
        risk={"name": "federated"},
    )
    told = facts(result, ChoicesPerturbed)
    chosen = [set(each.clusters) for each in facts(result, ClientsAssigned)]
    assert [set(each.handles) for each in told] == chosen
    assert len(told) == 5
    assert {each.epsilon for each in told} == {0.5}


def test_the_last_choice_is_drawn_from_the_secret_and_cannot_be_repeated(quick, tmp_path):
    def played(source):
        return quick(
            rounds=1,
            population={**NO_AUDIT, "clients": 24},
            method={"name": "ifca", "initialisation": "random"},
            privacy={"selection_noise": 1e6},  # coins, whatever the losses are
            secrets={"source": source},
        )

    def last(result):
        *_, final = facts(result, ClientsAssigned)
        assert final.by == "final"
        return {name: final.clusters[h] for name, h in result.names.items()}

    seeded, secret = played("seeded"), played("os")
    assert last(seeded) != last(secret)  # by chance with 2^-24
    (kept,) = (tmp_path / "config" / "covey" / "runs").glob("*.json")
    assert '"round": 2' in kept.read_text()
    assert resume(secret.folder).ledger_head == secret.ledger_head


def test_rebalancing_fills_every_noisy_sum_and_hides_no_choice(quick):
    result = quick(
        method={
            "name": "ifca-mir",
            "selection": {"name": "rebalanced", "target_share": 0.5},
            "initialisation": "random",
        },
        privacy=NOISY,
        secrets={"source": "os"},
    )
    assert {each.participants for each in facts(result, ModelsMerged)} == {(3, 3)}
    open_ = result.summary.privacy.guarantee.does_not_cover
    assert any("which cluster a client chose" in each for each in open_)


def test_shadows_imitate_the_noise(quick):
    result = quick(
        method=FEDAVG, privacy=NOISY, risk={"name": "shadow"}, train={"participation": 0.5}
    )
    assert facts(result, RiskMeasured)


@pytest.mark.parametrize(
    ("sections", "unit"),
    [
        ({"privacy": NOISY}, "client"),
        ({"privacy": {"record_clip": 1.0, "record_noise": 2.0}}, "record"),
        ({"aggregation": SOUND, "method": FEDAVG}, "client"),
    ],
    ids=["sums", "steps", "sets"],
)
def test_a_run_whose_secret_is_one_ends_with_an_epsilon(quick, sections, unit):
    told = quick(rounds=2, secrets={"source": "os"}, **sections).summary.privacy
    assert told.guarantee.unit == unit
    assert told.guarantee.epsilon > 0
    seeded = quick(rounds=2, **sections).summary.privacy
    assert seeded.guarantee is None
    assert "seed" in seeded.guarantee_reason


def test_noise_that_only_imitates_privacy_has_no_epsilon(quick):
    printed = {**SOUND, "noise": "paper", "epsilon": 0.0}
    told = quick(aggregation=printed, method=FEDAVG, secrets={"source": "os"}).summary.privacy
    assert told.guarantee is None
    assert "accounted for" in told.guarantee_reason


@pytest.mark.parametrize("sections", [{"privacy": NOISY}, {"aggregation": SOUND, "method": FEDAVG}])
def test_a_model_that_mixes_examples_is_refused(settings, sections):
    model = {"name": "vgg"}
    config = settings(data={"name": "python"}, model=model, **sections)
    images = torch.randint(0, 256, (6, 20, 3, 32, 32), dtype=torch.uint8)
    clients = [(each, torch.arange(20) % 2) for each in images]
    with pytest.raises(ModelError, match=r"nn\.GroupNorm"):
        run(clients=clients, config=config)
