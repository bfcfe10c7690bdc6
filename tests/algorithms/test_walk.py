"""From a client's last step to the ledger: how much somebody reads who follows an update."""

import sys
from types import FrameType

import covey
from covey.settings.run import build_run

WRITTEN_NOWHERE = {"<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>", "<lambda>", "__init__"}
"""Part of the function around them, or made by a dataclass."""
RECORDED = {("covey.runs.loop", "record_round"), ("covey.ledger.store", "Ledger.append")}
"""What a round's events pass after it."""


def test_an_update_passes_few_functions():
    settings = {
        "rounds": 1,
        "method": {"name": "fedavg"},
        "engine": {"name": "reference"},
        "population": {"clients": 3, "audit_examples": 0},
        "risk": {"name": "none"},
        "model": {"name": "linear"},
    }
    run = build_run(covey.Config.of(settings))
    state, clients = run.algorithm.init(run.streams), run.clients(run.population.clients)
    entered, updates = list[tuple[str, str]](), 0

    def trace(frame: FrameType, event: str, _: object) -> None:
        nonlocal updates
        module, code = str(frame.f_globals.get("__name__")), frame.f_code
        if event == "return" and code.co_name == "_train_one":
            updates += 1
            entered.clear()  # the walk of the last one counts
        elif (
            event == "call" and module.startswith("covey.") and code.co_name not in WRITTEN_NOWHERE
        ):
            entered.append((module, code.co_qualname))

    sys.setprofile(trace)
    try:
        run.algorithm.round(state, clients, run.streams)
    finally:
        sys.setprofile(None)
    assert updates == 3
    functions = RECORDED | set(entered)
    assert len(functions) <= 24, functions
    assert len({module for module, _ in functions}) <= 9, functions
