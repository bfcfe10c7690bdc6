"""Several figures on the same losses: the same answers, from one look at each example."""

from collections.abc import Sequence

import torch

from covey import Examples, ReferenceEngine, Scored, ScoringJob, Streams
from covey.engine.protocol import ScoredOnce
from covey.models.build import initial_params


class Counting(ReferenceEngine):
    """Notes how many examples it was asked about."""

    asked = 0

    def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
        self.asked += sum(len(job.examples) for job in jobs)
        return super().score(jobs)


def test_each_pair_of_model_and_examples_is_scored_once():
    with Streams(0).at("architecture").lent_to_torch():
        module = torch.nn.Linear(4, 3)
    engine, (one, other) = Counting(module), (initial_params(module) for _ in range(2))
    other = {name: value + 1 for name, value in other.items()}
    few, more = (Examples(torch.rand(n, 4), torch.arange(n) % 3) for n in (5, 9))
    once = ScoredOnce(engine)
    jobs = [ScoringJob(p, x) for p, x in ((one, few), (other, few), (one, few))]
    first = once.score(jobs)
    assert engine.asked == 2 * 5
    later = once.score([ScoringJob(one, more), *jobs])[1:]
    assert engine.asked == 2 * 5 + 9
    for job, *found in zip(jobs, first, later, strict=True):
        (true,) = ReferenceEngine(module).score([job])
        for each in found:
            assert torch.equal(each.losses, true.losses)
            assert torch.equal(each.predictions, true.predictions)
            assert each.log_probs is None


def test_examples_that_are_gone_lend_their_place_to_no_others():
    with Streams(0).at("architecture").lent_to_torch():
        module = torch.nn.Linear(4, 3)
    once, params = ScoredOnce(ReferenceEngine(module)), initial_params(module)
    for n in range(1, 50):  # each is freed before the next one is made
        (found,) = once.score(
            [ScoringJob(params, Examples(torch.rand(n, 4), torch.zeros(n).long()))]
        )
        assert len(found.losses) == n
