"""The controls of the true audit: what must be found, and what must not."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from covey import (
    Engine,
    Examples,
    Params,
    Recipe,
    ReferenceEngine,
    Scored,
    ScoringJob,
    Streams,
    TrainingJob,
)
from covey.data.examples import Client, Rotation
from covey.membership.controls import blind_baseline
from covey.membership.truth import (
    Membership,
    Reference,
    audit_clusters,
    beats_chance,
    blind_risk,
    true_risk,
)
from covey.models.build import initial_params

MakeClient = Callable[..., Client]
STREAMS = Streams(0).at("audit")


def tiny_mlp() -> nn.Module:
    """2,410 parameters."""
    with Streams(0).at("architecture").lent_to_torch():
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def part(examples: Examples, start: int, stop: int) -> Examples:
    return examples.take(torch.arange(start, stop))


def turned(examples: Examples, degrees: float) -> Examples:
    amounts = torch.full((len(examples),), degrees)
    return Examples(
        Rotation().apply(examples.inputs, amounts, np.random.default_rng(0)), examples.labels
    )


@pytest.fixture(scope="module")
def memorised(digits: Examples) -> tuple[Engine, Params, Examples]:
    """A model that learnt 100 random labels by heart, and digits labelled like that."""
    labels = np.random.default_rng(0).integers(10, size=len(digits))
    noisy = Examples(digits.inputs, torch.from_numpy(labels))
    module = tiny_mlp()
    engine = ReferenceEngine(module)
    recipe = Recipe(local_epochs=60, batch_size=10, learning_rate=0.1, momentum=0.9)
    members = part(noisy, 0, 100)
    job = TrainingJob(initial_params(module), members, Streams(0), recipe)
    return engine, next(engine.train([job])), noisy


def test_positive_control_a_model_of_random_labels_is_attackable(
    memorised: tuple[Engine, Params, Examples], make_client: MakeClient
):
    engine, params, noisy = memorised
    member = make_client("a", part(noisy, 0, 100), group=0)
    reference = Reference((part(noisy, 100, 500),))
    truth = true_risk(engine, params, [member], reference, STREAMS)
    assert truth is not None
    assert truth.risk > 0.7
    assert truth.auc is not None
    assert truth.auc > 0.7
    (audit,) = audit_clusters(
        engine, [params], Membership(((member,),), ((member,),), ((),)), reference, STREAMS
    )
    assert audit.truth.figure.value == pytest.approx(truth.risk, abs=0.1)
    assert "members can be distinguished" in audit.truth.reason
    assert audit.blind_auc == pytest.approx(0.5, abs=0.15)  # 50 a side: SE 0.06


@pytest.mark.parametrize("seed", range(3))
def test_negative_control_two_halves_of_unseen_data_score_one_half(
    memorised: tuple[Engine, Params, Examples], make_client: MakeClient, seed: int
):
    engine, params, noisy = memorised
    order = 100 + np.random.default_rng(seed).permutation(len(noisy) - 100)
    halves = [noisy.take(torch.from_numpy(half)) for half in np.split(order[:1200], 2)]
    never_trained = make_client("a", halves[0], group=0)
    reference = Reference((halves[1],))
    truth = true_risk(engine, params, [never_trained], reference, STREAMS)
    assert truth is not None
    # Of 600 records a side the rates alone have SE 0.0144; beyond 3 of them with
    # probability 0.003 for each seed. The threshold adds to the error that is stated.
    assert 0.0144 < truth.standard_error < 0.03
    assert abs(truth.risk - 0.5) < 3 * 0.0144


@pytest.mark.parametrize("seed", range(4))
def test_the_blind_baseline_cannot_tell_exchangeable_halves_apart(digits: Examples, seed: int):
    # 400 records judged: SE 0.025, beyond 3.3 of them with probability 0.001 per seed.
    rows = digits.inputs.flatten(1).float().numpy()
    draw = np.random.default_rng(seed)
    shuffled = draw.permutation(rows)[:800]
    rates = blind_baseline(shuffled[:400], shuffled[400:], draw)
    assert (rates.members, rates.non_members) == (200, 200)
    assert abs(rates.risk - 0.5) < 3.3 * 0.025
    assert abs((rates.auc or 0) - 0.5) < 3.3 * 0.029  # AUC: SE sqrt((200 + 200) / (12 * 200 * 200))


def test_the_blind_baseline_tells_rotated_digits_from_upright_ones(digits: Examples):
    upright = part(digits, 0, 200).inputs.flatten(1).float().numpy()
    rotated = turned(part(digits, 200, 400), 30.0).inputs.flatten(1).float().numpy()
    rates = blind_baseline(upright, rotated, np.random.default_rng(0))
    assert rates.risk > 0.8
    assert (rates.auc or 0) > 0.9


def test_the_blind_baseline_is_fair_to_sides_of_unequal_size(digits: Examples):
    # 30 against 450 judged: SE sqrt(0.25 / 30 + 0.25 / 450) / 2 = 0.047; 3.3 of them.
    rows = digits.inputs.flatten(1).float().numpy()
    rates = blind_baseline(rows[:60], rows[60:960], np.random.default_rng(0))
    assert abs(rates.risk - 0.5) < 3.3 * 0.047


def relabelled(examples: Examples, seed: int) -> Examples:
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(examples)))
    return replace(examples, labels=examples.labels[order])


@pytest.mark.parametrize("others", [40, 600])
def test_the_blind_baseline_sees_labels_beside_inputs(
    digits: Examples, make_client: MakeClient, others: int
):
    # The same images twice: once under their labels, once under each other's.
    unseen = part(digits, 600, 600 + others)
    member = make_client("a", part(digits, 0, 600), group=0)
    alike = blind_risk([member], Reference((unseen,)), STREAMS)
    wrong = blind_risk([member], Reference((relabelled(unseen, 0),)), STREAMS)
    assert alike is not None
    assert wrong is not None
    assert not beats_chance(alike)
    assert beats_chance(wrong)


@pytest.mark.parametrize("seed", range(4))
def test_labels_that_mean_nothing_on_either_side_are_no_mismatch(
    digits: Examples, make_client: MakeClient, seed: int
):
    # 300 judged of a side: SE 0.020, beyond 3.3 of them with probability 0.001 per seed.
    noisy = relabelled(digits, seed)
    member = make_client("a", part(noisy, 0, 600), group=0)
    found = blind_risk([member], Reference((part(noisy, 600, 1200),)), STREAMS)
    assert found is not None
    assert abs(found.risk - 0.5) < 3.3 * 0.020


def one_cluster(*clients: Client) -> Membership:
    return Membership(chosen=(clients,), trained=(clients,), pooled=((),))


def test_an_audit_refuses_its_figure_where_the_sides_do_not_match(
    memorised: tuple[Engine, Params, Examples], make_client: MakeClient
):
    engine, params, noisy = memorised
    member = make_client("a", part(noisy, 0, 100), group=0)
    mismatched = Reference((turned(part(noisy, 100, 400), 40.0),))
    (audit,) = audit_clusters(engine, [params], one_cluster(member), mismatched, STREAMS)
    assert audit.truth.figure.value is audit.truth.figure.error is audit.truth.auc is None
    assert audit.exposed.value is None
    assert audit.truth.reason.startswith("refused: ")
    assert audit.blind_auc is not None
    assert audit.blind_auc > 0.8
    blind = float(audit.truth.reason.partition("with accuracy ")[2].split()[0])
    assert blind > 0.7


def test_an_audit_of_a_model_that_learnt_nothing_finds_no_signal(
    digits: Examples, make_client: MakeClient
):
    module = tiny_mlp()
    clients = [
        make_client(f"c{i}", part(digits, 50 * i, 50 * i + 50), group=i % 2) for i in range(8)
    ]
    reference = Reference((part(digits, 400, 800), part(digits, 800, 1200)))
    (audit,) = audit_clusters(
        ReferenceEngine(module), [initial_params(module)], one_cluster(*clients),
        reference, STREAMS,
    )  # fmt: skip
    assert "no membership signal" in audit.truth.reason
    assert "400 members against 800 matched non-members" in audit.truth.reason
    assert audit.truth.figure.value == pytest.approx(0.5, abs=0.06)


def test_exposure_counts_the_clients_that_left(
    memorised: tuple[Engine, Params, Examples], make_client: MakeClient
):
    engine, params, noisy = memorised
    trained = make_client("a", part(noisy, 0, 100), group=0)
    newcomer = make_client("b", part(noisy, 100, 300), group=0)
    membership = Membership(
        chosen=((newcomer,), ()), trained=((trained,), (trained,)), pooled=((), ())
    )
    reference = Reference((part(noisy, 300, 700),))
    stayed, left = audit_clusters(engine, [params] * 2, membership, reference, STREAMS)
    assert stayed.truth.figure.value is not None
    assert stayed.exposed.value is not None
    assert abs(stayed.truth.risk - 0.5) < 0.12  # the newcomer is in no model
    assert stayed.exposed.value > 0.7
    assert left.truth.figure.value is None
    assert left.exposed.value is not None
    assert left.exposed.value > 0.7
    assert left.truth.reason.startswith("fewer than")


def test_an_audit_looks_at_each_record_once_whoever_comes_and_leaves(
    memorised: tuple[Engine, Params, Examples], make_client: MakeClient
):
    engine, params, noisy = memorised
    asked: list[int] = []

    class Counting:
        def train(self, jobs: Iterable[TrainingJob]) -> Iterator[Params]:
            return engine.train(jobs)

        def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
            asked.extend(len(job.examples) for job in jobs)
            return engine.score(jobs)

    left, stayed, new, reached = (
        make_client(name, part(noisy, 50 * k, 50 * k + 50), group=0)
        for k, name in enumerate("abcd")
    )
    membership = Membership(((stayed, new),), ((left, stayed),), ((reached,),))
    reference = Reference((part(noisy, 300, 400),))
    audit_clusters(Counting(), [params], membership, reference, STREAMS)
    assert sum(asked) == 4 * 50 + 100


def test_traces_are_judged_apart_from_those_who_trained(
    memorised: tuple[Engine, Params, Examples], make_client: MakeClient
):
    engine, params, noisy = memorised
    reached = make_client("a", part(noisy, 0, 100), group=0)
    newcomer = make_client("b", part(noisy, 100, 300), group=0)
    membership = Membership(((newcomer,),), ((newcomer,),), ((reached,),))
    reference = Reference((part(noisy, 300, 700),))
    (audit,) = audit_clusters(engine, [params], membership, reference, STREAMS)
    assert audit.traced.value is not None
    assert audit.traced.value > 0.7
    assert audit.exposed.value is not None
    assert abs(audit.exposed.value - 0.5) < 0.12


def test_traces_are_refused_where_only_their_sides_do_not_match(
    memorised: tuple[Engine, Params, Examples], make_client: MakeClient
):
    engine, params, noisy = memorised
    reached = make_client("a", turned(part(noisy, 0, 100), 40.0), group=0)
    own = make_client("b", part(noisy, 100, 300), group=0)
    membership = Membership(((own,),), ((own,),), ((reached,),))
    reference = Reference((part(noisy, 300, 700),))
    (audit,) = audit_clusters(engine, [params], membership, reference, STREAMS)
    assert audit.truth.figure.value is not None
    assert audit.traced.value is None


def test_an_audit_is_deterministic_and_clusters_are_independent(
    memorised: tuple[Engine, Params, Examples], make_client: MakeClient
):
    engine, params, noisy = memorised
    one = make_client("a", part(noisy, 0, 100), group=0)
    other = make_client("b", part(noisy, 100, 200), group=0)
    reference = Reference((part(noisy, 300, 700),))
    both = Membership(((one,), (other,)), ((one,), (other,)), ((), ()))
    first = audit_clusters(engine, [params] * 2, both, reference, STREAMS)
    assert audit_clusters(engine, [params] * 2, both, reference, STREAMS) == first
    alone = audit_clusters(engine, [params], one_cluster(one), reference, STREAMS)
    assert alone == first[:1]


def test_the_blind_baseline_covers_a_client_that_only_chose(
    memorised: tuple[Engine, Params, Examples], make_client: MakeClient
):
    # The one that trained matches the non-members; the one that joined with its last
    # choice does not, and its records are judged too.
    engine, params, noisy = memorised
    trained = make_client("a", part(noisy, 0, 40), group=0)
    newcomer = make_client("b", turned(part(noisy, 100, 400), 40.0), group=0)
    reference = Reference((part(noisy, 400, 900),))
    membership = Membership(((trained, newcomer),), ((trained,),), ((),))
    (audit,) = audit_clusters(engine, [params], membership, reference, STREAMS)
    assert audit.truth.figure.value is None
    assert audit.truth.reason.startswith("refused: ")


@pytest.mark.parametrize("kind", ["numbers", "several labels"])
def test_labels_that_do_not_match_are_seen_where_the_inputs_do(
    make_client: MakeClient, look_up: Engine, kind: str
):
    draws = np.random.default_rng(0)
    x = torch.from_numpy(draws.normal(size=(800, 3))).float()
    told = x[:, 0] if kind == "numbers" else (x[:, :2] > 0).long()
    other = -told if kind == "numbers" else 1 - told
    everything, mismatched = Examples(x, told), Examples(x, other)
    member = make_client("ada", part(everything, 0, 400), group=0)
    for rest, matches in ((everything, True), (mismatched, False)):
        reference = Reference((part(rest, 400, 800),))
        (found,) = audit_clusters(look_up, [{}], one_cluster(member), reference, STREAMS)
        assert (found.truth.figure.value is not None) == matches
        assert found.truth.reason.startswith("refused") != matches
