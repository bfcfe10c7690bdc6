"""How long does an audit with references take, by the engine that trains them?

LiRA with 16 references per cluster, on a run of the digits (40 clients, ten rounds).
"""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from tempfile import TemporaryDirectory

import covey
from benchmarks.playing import note

RUN: Mapping[str, object] = {"method.name": "ifca-mir", "method.selection": "loss", "rounds": 10}
QUICK: Mapping[str, object] = {"rounds": 1, "population.clients": 8}
ENGINES = ("parallel", "vmap")


def options(parser: ArgumentParser) -> None:
    """Add what this benchmark takes."""
    parser.add_argument("--references", type=int, default=16, help="Per cluster.")
    parser.add_argument("--models", nargs="+", default=["mnist-cnn", "mlp", "linear"])


def measure(chosen: Namespace) -> dict[str, list[dict[str, object]]]:
    """Return a row per model and engine."""
    rows: list[dict[str, object]] = []
    models = chosen.models[-1:] if chosen.quick else chosen.models
    references = 2 if chosen.quick else chosen.references
    for model in models:
        for engine in ENGINES:
            config = {**RUN, **(QUICK if chosen.quick else {}), "model.name": model}
            with TemporaryDirectory() as place:
                run = covey.run(
                    config={**config, "engine.name": engine}, out=f"{place}/run", progress=False
                )
                began = time.perf_counter(), time.process_time()
                audit = run.audit(["lira"], references)
                ended = time.perf_counter(), time.process_time()
            clock, processor = (b - a for a, b in zip(began, ended, strict=True))
            areas = [str(c.attacks["lira"].overall.auc) for c in audit.clusters if c.attacks]
            rows.append(
                {
                    "model": model,
                    "engine": engine,
                    "seconds": clock,
                    "of the processor": processor,
                    "AUC": "; ".join(areas),
                }
            )
            note(f"{model}, {engine}: {clock:.1f} s")
    return {f"LiRA with {references} references": rows}
