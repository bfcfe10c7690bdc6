"""Every engine's arithmetic, redone on paper."""

import math
from collections.abc import Callable

import torch
from torch import nn

from covey import Engine, Examples, Recipe, Scored, ScoringJob, TrainingJob

MakeEngine = Callable[[nn.Module], Engine]
PointJob = Callable[..., TrainingJob]


def test_one_step_by_hand(make_engine: MakeEngine, point_job: PointJob):
    # p = softmax(0, 0) = (1/2, 1/2); gradient = (p - (1, 0)) x = (-1/2, 1/2)
    # weight = 0 - 0.1 * gradient = (0.05, -0.05)
    engine = make_engine(nn.Linear(1, 2, bias=False))
    (trained,) = engine.train([point_job(Recipe(learning_rate=0.1))])
    torch.testing.assert_close(trained["weight"], torch.tensor([[0.05], [-0.05]]))


def test_two_momentum_steps_by_hand(make_engine: MakeEngine, point_job: PointJob):
    # step 1: as above, velocity = gradient = (-1/2, 1/2), weight = (0.05, -0.05)
    # step 2: p_0 = 1 / (1 + e^-0.1) = 0.524979; gradient_0 = p_0 - 1 = -0.475021
    #         velocity_0 = 0.9 * -0.5 - 0.475021 = -0.925021
    #         weight_0 = 0.05 + 0.0925021 = 0.1425021, and weight_1 = -weight_0
    engine = make_engine(nn.Linear(1, 2, bias=False))
    recipe = Recipe(local_epochs=2, learning_rate=0.1, momentum=0.9)
    (trained,) = engine.train([point_job(recipe)])
    expected = torch.tensor([[0.1425021], [-0.1425021]])
    torch.testing.assert_close(trained["weight"], expected, rtol=0, atol=1e-6)


def test_scores_by_hand(make_engine: MakeEngine):
    # weight (ln 3, 0). x = 1: p = (3/4, 1/4). x = 0: p = (1/2, 1/2).
    params = {"weight": torch.tensor([[math.log(3)], [0.0]])}
    examples = Examples(torch.tensor([[1.0], [1.0], [0.0]]), torch.tensor([0, 1, 1]))
    engine = make_engine(nn.Linear(1, 2, bias=False))
    (scored,) = engine.score([ScoringJob(params, examples)])
    expected = torch.tensor([math.log(4 / 3), math.log(4), math.log(2)])
    torch.testing.assert_close(scored.losses, expected)
    assert scored.predictions.tolist() == [0, 0, 0]


def test_logits_and_log_probabilities_give_the_same_losses(make_engine: MakeEngine):
    params = {"0.weight": torch.tensor([[2.0], [-1.0]])}
    examples = Examples(torch.tensor([[1.0], [3.0]]), torch.tensor([0, 1]))
    linear = nn.Linear(1, 2, bias=False)

    def scores(*layers: nn.Module) -> Scored:
        engine = make_engine(nn.Sequential(*layers))
        return engine.score([ScoringJob(params, examples)])[0]

    logits, log_p = scores(linear), scores(linear, nn.LogSoftmax(dim=1))
    torch.testing.assert_close(logits.losses, log_p.losses)
