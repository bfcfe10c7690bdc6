"""Every number that the Python API takes: out of its range it is refused by covey's own error."""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jaxtyping import TypeCheckError

import covey
from covey.base.built_ins import MODULES, built_ins
from covey.base.components import Component
from support.runs import small

REFUSED = (covey.CoveyError, TypeCheckError)
"""The latter where the types of all calls are checked (`make contracts`)."""
NO_NUMBERS = st.sampled_from([float("nan"), float("inf"), -float("inf"), "1", True, b"1", [1]])
NEGATIVE = st.one_of(st.integers(max_value=-1), st.floats(max_value=-1e-9, allow_nan=False))
PARTS = st.floats(0.01, 0.99)
BELOW_ZERO = NO_NUMBERS | NEGATIVE
NOT_COUNT = BELOW_ZERO | PARTS
NOT_POSITIVE = NOT_COUNT | st.just(0)
NOT_SHARE = BELOW_ZERO | st.floats(min_value=1, exclude_min=True) | st.integers(min_value=2)
NOT_INSIDE = NOT_SHARE | st.sampled_from([0, 1, 0.0, 1.0])
NOT_WORKERS = NOT_POSITIVE.filter(lambda n: n != -1)
COINS = covey.draw_canaries(64, seed=0)
AUDIT = covey.ModelAudit(members=20, non_members=20, shared=0)
EXAMPLES = covey.Examples(torch.randn(40, 4), torch.arange(40) % 2)
TINY = small(rounds=1)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> covey.Run:
    return covey.run(config=TINY, out=tmp_path_factory.mktemp("arguments") / "run")


def audited(**argument: Any) -> object:
    model = torch.nn.Linear(4, 2)
    sides = (EXAMPLES.inputs, EXAMPLES.labels), (EXAMPLES.inputs + 9, EXAMPLES.labels)
    return covey.audit_model(model, *sides, references=lambda *_: model, **argument)


def one_run(**argument: Any) -> object:
    return covey.audit_one_run(np.zeros(64), COINS, **{"delta": 1e-5, **argument})


def rates(**argument: Any) -> object:
    usual = {"tpr": 0.5, "tnr": 0.5, "members": 10, "non_members": 10}
    return covey.RiskEstimate.of_rates(**{**usual, **argument})


def swept(**argument: Any) -> object:
    return covey.sweep(TINY, out="/nowhere", **argument)


def falling(**argument: Any) -> object:
    recipe = covey.Recipe(schedule=covey.Cosine())
    return recipe.at(**{"round_index": 0, "rounds": 5, **argument})


Call = Callable[..., object]
CALLS: dict[str, tuple[Call, dict[str, st.SearchStrategy[Any]]]] = {
    "audit_model": (
        audited,
        {"num_references": NOT_POSITIVE, "seed": NOT_COUNT, "workers": NOT_WORKERS},
    ),
    "audit_one_run": (
        one_run,
        {
            "delta": NOT_INSIDE,
            "confidence": NOT_INSIDE,
            "accounted": BELOW_ZERO,
            "accounted_mu": BELOW_ZERO,
        },
    ),
    "draw_canaries": (
        lambda **a: covey.draw_canaries(**{"count": 8, "seed": 0, **a}),
        {"count": NOT_POSITIVE, "seed": NOT_COUNT},
    ),
    "sweep": (swept, {"seeds": NOT_POSITIVE.filter(lambda n: n != [1])}),
    "ModelAudit.exceeds": (AUDIT.exceeds, {"limit": NOT_SHARE}),
    "ModelAudit.most_exposed": (AUDIT.most_exposed, {"share": NOT_SHARE}),
    "Examples.first": (EXAMPLES.first, {"count": NOT_COUNT}),
    "Figure.share": (
        lambda **a: covey.Figure.share(**{"value": 0.5, "error": 0.1, **a}),
        {"value": NOT_SHARE, "error": BELOW_ZERO},
    ),
    "RiskEstimate.of_rates": (
        rates,
        {
            "tpr": NOT_SHARE,
            "tnr": NOT_SHARE,
            "members": NOT_COUNT,
            "non_members": NOT_COUNT,
            "fitted": NOT_SHARE,
            "auc": NOT_SHARE,
        },
    ),
    "Recipe": (
        covey.Recipe,
        {
            "local_epochs": NOT_POSITIVE,
            "local_steps": NOT_COUNT,
            "batch_size": NOT_POSITIVE,
            "learning_rate": BELOW_ZERO,
            "least_steps": NOT_COUNT,
            "max_gradient_norm": BELOW_ZERO,
            "record_clip": BELOW_ZERO,
            "record_noise": BELOW_ZERO,
        },
    ),
    "ClusterMeans.mean": (
        covey.ClusterMeans(()).mean,
        {"cluster": BELOW_ZERO | st.integers(min_value=0)},
    ),
    "ByThreshold": (covey.ByThreshold, {"ties": BELOW_ZERO}),
    "Weighted": (covey.Weighted, {"ties": BELOW_ZERO}),
    "Recipe.at": (falling, {"round_index": NOT_COUNT, "rounds": NOT_POSITIVE}),
}
OF_RUNS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "Run.params": {"cluster": NOT_COUNT | st.integers(min_value=1)},
    "Run.export": {
        "cluster": NOT_COUNT | st.integers(min_value=1),
        "after": NOT_COUNT | st.integers(min_value=2),
    },
    "Run.audit": {"references": NOT_COUNT | st.sampled_from([0, 1])},
}
ELSEWHERE = {
    "run": "thresholds and weights: tests/settings",
    "Streams": "any whole number is a seed, and any name a path",
    "Streams.at": "any number names a stream",
}
MADE_BY_COVEY = {
    "ClientUpdate",
    "Clients",
    "Figure",
    "History",
    "ModelAudit",
    "OneRunAudit",
    "RoundMetrics",
    "PopulationRequest",
    "RiskContext",
    "RiskEstimate",
    "ServerState",
    "Setup",
    "PublishedData",
    "Target",
    "Task",
}
"""What user code is given, and reads."""


def numbers_of(function: Callable[..., Any]) -> list[str]:
    """Return the parameters that are annotated as numbers, or may be."""
    hints = get_type_hints(function)
    return [
        name
        for name in inspect.signature(function).parameters
        if any(hint in (int, float) for hint in (hints.get(name), *get_args(hints.get(name))))
    ]


def public_numbers() -> Iterator[tuple[str, str]]:
    """Yield every public function, constructor and method with its parameters of numbers."""
    for name in covey.__all__:
        thing = getattr(covey, name)
        if inspect.isfunction(thing):
            yield from ((name, number) for number in numbers_of(thing))
        if not inspect.isclass(thing) or issubclass(thing, Component) or name in MADE_BY_COVEY:
            continue
        if thing.__init__ is not object.__init__ and not getattr(thing, "_is_protocol", False):
            yield from ((name, number) for number in numbers_of(thing.__init__) if number != "self")
        methods = ((m, f) for m, f in inspect.getmembers(thing, callable) if not m.startswith("_"))
        for method, function in methods:
            if inspect.isroutine(function) and str(getattr(function, "__module__", "")).startswith(
                "covey"
            ):
                yield from ((f"{name}.{method}", number) for number in numbers_of(function))


def test_every_number_of_the_public_functions_is_in_these_tables():
    tables = {name: set(drawn) for name, (_, drawn) in CALLS.items()}
    tables |= {name: set(drawn) for name, drawn in OF_RUNS.items()}
    lacking = [
        f"{name}({number})"
        for name, number in public_numbers()
        if name not in ELSEWHERE and number not in tables.get(name, ())
    ]
    assert lacking == []


@pytest.mark.parametrize("name", CALLS)
@given(data=st.data())
def test_a_number_out_of_its_range_is_refused(name, data):
    call, drawn = CALLS[name]
    argument = data.draw(st.sampled_from(sorted(drawn)))
    value = data.draw(drawn[argument])
    with pytest.raises(REFUSED, match=argument):
        call(**{argument: value})


@pytest.mark.parametrize("name", OF_RUNS)
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_number_that_a_run_has_not_is_refused(name, data, played):
    argument = data.draw(st.sampled_from(sorted(OF_RUNS[name])))
    value = data.draw(OF_RUNS[name][argument])
    others = {"cluster": 0} if argument == "after" else {}
    with pytest.raises(REFUSED):
        getattr(played, name.partition(".")[2])(**{argument: value}, **others)


def components() -> Iterator[type[Component]]:
    """Yield every built-in class, with those that programs make: settings as objects."""
    yield covey.EarlyStopping  # pyright: ignore[reportReturnType]
    for kind in MODULES:
        yield from (cls for cls in built_ins(kind).values() if issubclass(cls, Component))


@given(data=st.data())
def test_a_component_that_a_program_makes_refuses_what_settings_refuse(data):
    made = data.draw(st.sampled_from(list(components())))
    fields = [n for n, f in made.model_fields.items() if f.annotation in (int, float)]
    if not fields:
        return
    field, value = data.draw(st.sampled_from(sorted(fields))), data.draw(NO_NUMBERS)
    with pytest.raises(covey.ConfigError, match=field):
        made(**{field: value})


PLACES = ["file/below", "x" * 300, "with\0nul", 5, None]
OPENED: dict[str, Callable[[Any, covey.Run], object]] = {
    "run": lambda place, _: covey.run(config=TINY, out=place),
    "sweep": lambda place, _: covey.sweep(TINY, out=place),
    "load": lambda place, _: covey.load(place),
    "resume": lambda place, _: covey.resume(place),
    "load_config": lambda place, _: covey.load_config(place),
    "verify": lambda place, run: covey.verify(place, run.folder),
    "Run.verify": lambda place, run: run.verify(place),
    "Run.report": lambda place, run: run.report(place),
    "Run.export": lambda place, run: run.export(0, out=place),
    "ModelAudit.write_html": lambda place, _: AUDIT.write_html(place),
}
NONE_IS_MEANT = {"load_config", "Run.report", "Run.export"}


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("name", OPENED)
def test_a_place_that_cannot_be_used_is_refused_by_name(name, place, played, tmp_path: Path):
    if place is None and name in NONE_IS_MEANT:
        return
    (tmp_path / "file").touch()
    where = str(tmp_path / place) if isinstance(place, str) else place
    with pytest.raises(covey.CoveyError) as raised:
        OPENED[name](where, played)
    assert "Errno" not in str(raised.value)


@pytest.mark.parametrize("place", ["a folder", "below a file"])
def test_pages_say_where_they_cannot_be_written(place, played, tmp_path):
    (tmp_path / "a folder").mkdir()
    (tmp_path / "file").touch()
    where = {"a folder": tmp_path / "a folder", "below a file": tmp_path / "file" / "x"}[place]
    for write in (played.report, AUDIT.write_html):
        with pytest.raises(covey.ConfigError, match=where.name):
            write(where)


@pytest.mark.parametrize("attacks", ["loss", [], (), None, 5, {"loss"}])
def test_attacks_are_a_list_of_at_least_one(attacks, played):
    for audit in (audited, played.audit):
        with pytest.raises(covey.ConfigError, match="attacks must be a list"):
            audit(attacks=attacks)


@pytest.mark.parametrize("seeds", [0, [], (), "1", 1.5, [-1], [0.5]])
def test_a_sweep_has_a_seed(seeds):
    with pytest.raises(covey.ConfigError, match="seeds"):
        swept(seeds=seeds)


@pytest.mark.parametrize("values", [[], (), "fedavg", 3, {1: 2}])
def test_a_sweep_goes_over_lists_of_values(values):
    with pytest.raises(covey.ConfigError, match=r"over must list values of rounds"):
        swept(over={"rounds": values})


def test_a_figure_of_no_name_is_refused_and_one_that_was_withheld_is_unknown():
    audit = covey.ModelAudit(20, 20, 0, withheld={"lira": "withheld: no references"})
    assert str(audit.figure("lira", "auc")) == "unknown: withheld: no references"
    for attack, rate in (("lira", "risk"), ("loss", "auc"), ("", ""), (5, "auc"), ("lira", None)):
        with pytest.raises(covey.ConfigError, match="must be one of"):
            audit.figure(attack, rate)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("scores", [["a"] * 64, [None] * 64, [[1], [1, 2]] * 32])
def test_scores_that_are_no_numbers_are_refused(scores):
    with pytest.raises(covey.DataError):
        covey.audit_one_run(scores, COINS, 1e-5)


def test_scores_with_a_gradient_are_scores():
    scores = torch.rand(64, generator=torch.Generator().manual_seed(0))
    plain = covey.audit_one_run(scores.numpy(), COINS, 1e-5)
    assert covey.audit_one_run(scores.requires_grad_(), COINS, 1e-5) == plain  # pyright: ignore[reportArgumentType]
