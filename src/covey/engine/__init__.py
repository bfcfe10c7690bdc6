"""Engines: interchangeable ways to run the clients' local training and scoring."""

from covey.engine.base import EngineFactory
from covey.engine.batches import num_steps
from covey.engine.parallel import ParallelEngine, Precision
from covey.engine.private import check_private, private_gradients
from covey.engine.protocol import Engine, Recipe, Scored, ScoringJob, TrainingJob
from covey.engine.reference import ReferenceEngine
from covey.engine.task import MULTICLASS, MULTILABEL, REGRESSION, TASKS, Task
from covey.engine.vmap import VmapEngine

__all__ = [
    "MULTICLASS",
    "MULTILABEL",
    "REGRESSION",
    "TASKS",
    "Engine",
    "EngineFactory",
    "ParallelEngine",
    "Precision",
    "Recipe",
    "ReferenceEngine",
    "Scored",
    "ScoringJob",
    "Task",
    "TrainingJob",
    "VmapEngine",
    "check_private",
    "num_steps",
    "private_gradients",
]
