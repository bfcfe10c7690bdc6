"""How long does a client of ridge heads wait for the signed proof that it was subtracted?

The clients' data are in memory when it asks, as on a server that runs. The run is stopped
after its first round: after an answer, a run that was over lets everybody choose again and
measures its end, which is no part of the answer.
"""

from argparse import ArgumentParser, Namespace
from contextlib import suppress
from tempfile import TemporaryDirectory

import covey

RECORDS, CLASSES = 2, 10


class _StopError(Exception):
    """The first round is over."""


def options(parser: ArgumentParser) -> None:
    """Add what this benchmark takes."""
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--features", type=int, default=1_800, help="Of each record.")
    parser.add_argument("--answers", type=int, default=5, help="Clients that leave.")


def measure(chosen: Namespace) -> dict[str, list[dict[str, object]]]:
    """Return a row per answer."""
    sizes = (chosen.clients, chosen.features, chosen.answers)
    clients, features, answers = (20, 4, 2) if chosen.quick else sizes
    draws = covey.Streams(0).at("vectors").generator()
    inputs = draws.random((clients, RECORDS, features), dtype="float32") * 2 - 1
    labels = draws.integers(CLASSES, size=(clients, RECORDS))
    data = {f"client-{i:05d}": (inputs[i], labels[i]) for i in range(clients)}
    config = {
        "rounds": 2,
        "population.holdout": 0.0,
        "model": {"name": "linear-head", "features": "none"},
        "method.name": "ridge",
        "method.num_clusters": 2,
        "method.initialisation": "random",
        "risk.name": "none",
        "secrets.source": "seeded",
    }
    rows: list[dict[str, object]] = []
    with TemporaryDirectory() as place:
        keys = {"secrets.key_path": f"{place}/key.pem"}
        with suppress(_StopError):
            covey.run(clients=data, config={**config, **keys}, out=f"{place}/run", on_round=_stop)
        run = covey.load(f"{place}/run", clients=data)
        for name in list(data)[:: max(1, clients // answers)][:answers]:
            (answer,) = run.forget(name, "subtract")
            failed = [check.name for check in run.verify(answer.answered.proof).failed]
            rows.append({"seconds": answer.seconds, "failed checks": ", ".join(failed) or "none"})
    return {f"{clients:,} clients, {features:,} features": rows}


def _stop(_: covey.RoundMetrics) -> None:
    raise _StopError
