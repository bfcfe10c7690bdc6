"""Three kinds of non-members: only one of them matches."""

import pytest

from covey import Config, load
from covey.membership.truth import blind_risk, true_risk
from covey.runs.folder import RunFolder
from covey.settings.run import build_run
from covey_papers.reproduce.mixtures import attacked
from covey_papers.reproduce.record import digest
from reproduce.tiny import IFCA


@pytest.fixture(scope="module")
def path(played):
    """A run whose minority sees its digits at a third of their brightness."""
    (digits, _), seed = played.experiment.columns, {"seed": 0}
    settings = played.experiment.settings_of(digits, IFCA)
    return played.folder / digest(Config.of({**settings, **seed}))


@pytest.fixture(scope="module")
def of(path):
    return {(attack.non_members, attack.group): attack for attack in attacked(path)}


@pytest.mark.parametrize("group", ["minority", "majority"])
def test_matched_non_members_are_those_of_the_audit(path, of, group):
    run = build_run(RunFolder.existing(path).config())
    held = load(path)
    clients, models = run.population.clients, [held.params(j) for j in range(run.num_clusters)]
    which = ["minority", "majority"].index(group)
    chosen = held.history.assignment
    own = [chosen[held.names[client.name]] for client in clients if client.group == which]
    home = max(sorted(set(own)), key=own.count)
    members = [client for client in clients if chosen[held.names[client.name]] == home]
    streams = run.streams.at("non-members of other kinds", home)
    sides = members, run.reference, streams
    risk = true_risk(run.engine, models[home], *sides)
    blind = blind_risk(*sides)
    assert risk is not None
    assert blind is not None
    assert of["matched", group].risk == risk.risk
    assert of["matched", group].blind == blind.risk
    audited = held.history.audits[home]
    assert f"{risk.members} members against {risk.non_members} matched" in audited.truth.reason
    # it splits the same records into other folds
    assert audited.truth.risk == pytest.approx(risk.risk, abs=4 * risk.standard_error)


def test_shifted_non_members_are_recognised_without_any_model(of):
    assert of["untransformed", "minority"].blind > 0.9
    assert of["pooled", "minority"].blind > 0.6
    assert of["matched", "minority"].blind < 0.55
    assert of["matched", "majority"].blind < 0.55
