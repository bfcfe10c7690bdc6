"""Engines: interchangeable ways to run the clients' local training and scoring."""

from covey.engine.base import EngineFactory
from covey.engine.batches import num_steps
from covey.engine.fixed_features import LocalRecords, params_of, width_of
from covey.engine.losses import CrossEntropy, Focal, Huber, Loss, OwnLoss
from covey.engine.objectives import OwnObjective, Proximal
from covey.engine.optimizers import Adam, AdamW, Optimizer, Sgd
from covey.engine.parallel import ParallelEngine, Precision
from covey.engine.private import check_private, private_gradients
from covey.engine.protocol import Engine, Scored, ScoringJob, TrainingJob
from covey.engine.recipe import Objective, Recipe, RecipeNumbers
from covey.engine.reference import ReferenceEngine
from covey.engine.schedules import (
    Constant,
    Cosine,
    OwnSchedule,
    Schedule,
    Stepwise,
    WarmUp,
)
from covey.engine.task import MULTICLASS, MULTILABEL, REGRESSION, TASKS, Task
from covey.engine.torch_optimizer import TorchOptimizer
from covey.engine.vmap import VmapEngine

__all__ = [
    "MULTICLASS",
    "MULTILABEL",
    "REGRESSION",
    "TASKS",
    "Adam",
    "AdamW",
    "Constant",
    "Cosine",
    "CrossEntropy",
    "Engine",
    "EngineFactory",
    "Focal",
    "Huber",
    "LocalRecords",
    "Loss",
    "Objective",
    "Optimizer",
    "OwnLoss",
    "OwnObjective",
    "OwnSchedule",
    "ParallelEngine",
    "Precision",
    "Proximal",
    "Recipe",
    "RecipeNumbers",
    "ReferenceEngine",
    "Schedule",
    "Scored",
    "ScoringJob",
    "Sgd",
    "Stepwise",
    "Task",
    "TorchOptimizer",
    "TrainingJob",
    "VmapEngine",
    "WarmUp",
    "check_private",
    "num_steps",
    "params_of",
    "private_gradients",
    "width_of",
]
