"""Settings of a run that takes a second."""

TINY = {
    "rounds": 3,
    "population.clients": 4,
    "population.examples_per_client": 20,
    "population.audit_examples": 0,
    "model.name": "linear",
    "train.local_epochs": 1,
    "risk.every": 2,
    "method.initialisation": "random",
    "checkpoints.keep": "all",
}
