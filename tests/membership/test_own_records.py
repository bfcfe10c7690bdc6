"""A client's own records, judged by how hard other models find them."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from covey.data.examples import Client, Examples
from covey.engine import Scored, ScoringJob
from covey.membership import RiskContext, RiskEstimate
from covey.membership.own_records_estimator import OwnRecordsEstimator
from covey.rng import Streams
from covey.types import Params

MakeClient = Callable[..., Client]
STREAMS = Streams(0).at("round", 5)


class PerModel:
    """A fake engine: an example's loss is its input in the column that a model names."""

    def train(self, jobs: object) -> object:
        return iter(())

    def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
        return [
            Scored(
                job.examples.inputs[:, int(job.params["column"])],
                job.examples.labels,
                None,
                None,
            )
            for job in jobs
        ]


def examples(*columns: Sequence[float]) -> Examples:
    inputs = torch.tensor(columns).T.contiguous()
    return Examples(inputs, torch.zeros(len(inputs), dtype=torch.int64))


MODELS: tuple[Params, ...] = tuple({"column": torch.tensor(j)} for j in range(2))


def judged(client: Client, models: tuple[Params, ...] = MODELS) -> list[float | None]:
    context = RiskContext(PerModel())  # type: ignore[arg-type]
    found = OwnRecordsEstimator().judge(models, (client,), context, STREAMS)
    (row,) = found.values()
    return [each and each.risk for each in row]


def test_hard_records_that_are_known_give_members_away(make_client: MakeClient):
    # losses alone say nothing: members and others spread over the same 0 to 3.8. Under
    # model 1 all members are 2 harder than under model 0, and all others as hard
    losses = np.linspace(0, 3.8, 20).tolist()
    harder = [each + 2 for each in losses]
    client = make_client("a", examples(losses, harder), examples(losses, losses))
    inside, outside = judged(client)
    assert inside == 1.0
    assert outside is not None
    assert outside <= 0.5
    (alone,) = judged(client, MODELS[:1])
    assert alone is not None
    assert alone < 0.65


def test_models_that_are_alike_tell_nothing(make_client: MakeClient):
    losses = np.linspace(0, 1, 30).tolist()
    client = make_client("a", examples(losses, losses), examples(losses, losses))
    assert judged(client) == [None, None]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_there_is_no_figure_of_what_is_no_loss(make_client: MakeClient, bad: float):
    losses = np.linspace(0, 1, 30).tolist()
    broken = [bad, *losses[1:]]
    client = make_client("a", examples(losses, broken), examples(losses, losses))
    assert judged(client) == [None, None]


def test_nobody_judges_by_too_few_records(make_client: MakeClient):
    few = [0.5] * 3
    client = make_client("a", examples(few, few), examples(few, few))
    assert judged(client) == [None, None]


def test_it_needs_no_more_than_its_own_holdout(make_client: MakeClient):
    # 24 members and 12 others at random: the error is that of so few records
    drawn = np.random.default_rng(0).normal(1, 0.3, (4, 24)).clip(0)
    sides = examples(*drawn[:2].tolist()), examples(*drawn[2:, :12].tolist())
    client, context = make_client("a", *sides), RiskContext(PerModel())  # type: ignore[arg-type]
    rows = OwnRecordsEstimator().judge(MODELS, (client,), context, STREAMS)
    for each in rows[client.handle]:
        assert isinstance(each, RiskEstimate)
        assert abs(each.risk - 0.5) < 3 * each.standard_error
        assert 0.03 < each.standard_error < 0.12
