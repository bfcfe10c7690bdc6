"""What people hand in and sources bring: names before places, files as programs write them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import covey
from covey import ClientData, DataError, PopulationRequest, Streams
from covey.data.clients import clients_of, population_of_clients
from covey.data.examples import Preference
from covey.data.population import PopulationSpec, read_preferences

LABELS = np.tile([0, 1], 10)


def table(*columns: str) -> pd.DataFrame:
    """Return columns of which each holds its own number."""
    values = {"age": 1.0, "bmi": 2.0, "height": 3.0}
    return pd.DataFrame({name: np.full(20, values[name]) for name in columns} | {"y": LABELS})


FORMS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "a table": lambda frame: frame,
    "a table and labels": lambda frame: (frame.drop(columns="y"), LABELS),
    "a dict of columns": lambda frame: {name: frame[name].to_numpy() for name in frame},
    "a list of dicts": lambda frame: frame.to_dict("records"),
    "train and test": lambda frame: (frame, frame),
    "examples": lambda frame: clients_of({"a": frame})["a"].train,
}


@pytest.mark.parametrize("form", FORMS)
def test_columns_are_joined_by_name(form):
    first, other = (FORMS[form](table(*names)) for names in (("age", "bmi"), ("bmi", "age")))
    held = clients_of({"a": first, "b": other})
    for own in held.values():
        for part in filter(None, own):
            assert part.inputs.tolist() == [[1.0, 2.0]] * 20


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("names", [("age", "height"), ("age",), ("age", "bmi", "height")])
def test_other_columns_are_refused_by_name(form, names):
    clients = {"a": FORMS[form](table("age", "bmi")), "b": FORMS[form](table(*names))}
    with pytest.raises(covey.DataError):
        clients_of(clients)


def test_a_test_set_in_another_order_is_put_in_the_order_of_training():
    (own,) = clients_of([(table("age", "bmi"), table("bmi", "age"))]).values()
    assert own.test is not None
    assert own.test.inputs.tolist() == own.train.inputs.tolist()


@pytest.mark.parametrize(
    "labels",
    [
        LABELS.tolist(),
        list(LABELS),
        [np.int32(v) for v in LABELS],
        [np.bool_(v) for v in LABELS],
        [torch.tensor(int(v)) for v in LABELS],
        tuple(LABELS),
        pd.Series(LABELS),
    ],
)
def test_labels_in_a_list_are_numbers_of_any_library(labels):
    (own,) = clients_of([(np.zeros((20, 2), np.float32), labels)]).values()
    assert own.train.labels.tolist() == LABELS.tolist()


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([str(v) for v in LABELS], "its labels must be numbers.*number classes and words"),
        (LABELS[None], r"pass labels.squeeze\(\)"),
        (LABELS[:-1], "correct its arrays"),
    ],
)
def test_labels_of_another_form_are_refused_with_what_to_do(labels, said):
    with pytest.raises(covey.DataError, match=said):
        clients_of([(np.zeros((20, 2), np.float32), labels)])


def test_a_column_of_numbers_to_predict_is_a_list_of_them():
    (own,) = clients_of([(np.zeros((20, 2), np.float32), np.ones((20, 1), np.float32))]).values()
    assert own.train.labels.shape == (20,)


def started(out: Path, clients: dict[Any, Any] | None = None, **population: Any) -> covey.Run:
    settings = {"rounds": 1, "method.name": "fedavg", "risk.name": "none"}
    settings |= {f"population.{key}": value for key, value in population.items()}
    model = None if clients is None else lambda: nn.Linear(3, 2)
    if clients is None:
        settings |= {"model.name": "linear", "population.clients": 4}
    return covey.run(model, clients, config=settings, out=out, progress=False)


def site(seed: int) -> tuple[Any, Any]:
    inputs = np.random.default_rng(seed).normal(size=(20, 3)).astype(np.float32)
    return inputs, LABELS


@pytest.mark.parametrize("kind", [int, np.int64, np.uint8, np.str_])
def test_a_client_is_found_by_the_name_that_was_handed_in(kind, tmp_path):
    names = [kind(number) for number in (3, 4, 5, 6)]
    sites = {name: site(i) for i, name in enumerate(names)}
    run = started(tmp_path / "run", sites, exclude=[names[3]])
    assert sorted(run.names) == ["3", "4", "5"]
    assert run.cluster_of(names[1]) == 0
    assert run.explain(names[1]).client == "4"
    assert run.plan(names[1]).client == "4"
    assert [plan.client for plan in run.plan(names[:2])] == ["3", "4"]
    run.export(client=names[1])
    (one,) = run.forget(names[1], answer="stop")
    assert one.client == "4"


@pytest.mark.parametrize(
    "use", [lambda run, name: run.explain(name), lambda run, name: run.forget(name, "retrain")]
)
def test_a_misspelt_name_is_answered_with_the_nearest(use, tmp_path):
    run = started(tmp_path / "run")
    with pytest.raises(covey.RunError, match="Do you mean 'client-00002'"):
        use(run, "clinet-00002")


NAMED = "name,risk_threshold\nclient-00001,0.6\n"
MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"
TABLES = {
    "marked.csv": MARK + NAMED,
    "semicolons.csv": "name;risk_threshold\nclient-00001;0,6\n",
    "tabs.csv": "name\trisk_threshold\nclient-00001\t0.6\n",
    "LOUD.CSV": NAMED,
    "spaces.csv": " Name , risk_threshold\nclient-00001 , 0.6\n",
    "lines.csv": NAMED.replace("\n", "\r\n") + "\r\n",
    "quoted.csv": '"name","risk_threshold"\n"client-00001","0.6"\n',
    "marked.toml": MARK + "[client-00001]\nrisk_threshold = 0.6\n",
}


@pytest.mark.parametrize("name", TABLES)
def test_files_are_read_as_other_programs_write_them(name, tmp_path):
    (tmp_path / name).write_bytes(TABLES[name].encode("utf-8"))
    (preference,) = read_preferences(tmp_path / name).values()
    assert preference.risk_threshold == 0.6


def test_settings_with_a_byte_order_mark_are_read(tmp_path):
    (tmp_path / "a.toml").write_text(MARK + "rounds = 3\n", encoding="utf-8")
    assert covey.load_config(tmp_path / "a.toml").rounds == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("client;risk_threshold\na;0.6\n", r"'risk_threshold'\] between semicolons"),
        ("name,risk_treshold\nclient-00001,0.6\n", "do you mean 'risk_threshold'"),
        ("name,risk_threshold,risk_wieght\nclient-00001,0.6,0.1\n", "do you mean 'risk_weight'"),
        (NAMED + "clinet-00002,0.6\n", "found 'clinet-00002': do you mean 'client-00002'"),
        (NAMED + "client-00001,0.7\n", "must name each client once"),
        (NAMED + "client-00002,60\n", "60 is not in"),
    ],
)
def test_what_nobody_reads_in_a_file_is_refused_by_name(text, said, tmp_path):
    (tmp_path / "accepted.csv").write_text(text)
    with pytest.raises(covey.ConfigError, match=said):
        started(tmp_path / "run", preferences=str(tmp_path / "accepted.csv"))


class Augmented(Dataset[Any]):
    """Items out of which a transform makes others at each reading."""

    def __init__(self, change: Callable[[torch.Tensor, int], Any], *, keys: bool) -> None:
        self.change, self.keys, self.reads = change, keys, 0

    def __len__(self) -> int:
        return 100

    def __getitem__(self, at: int) -> Any:
        self.reads += 1
        made = self.change(torch.full((3,), float(at)), self.reads)
        return {"x": made, "y": at % 2} if self.keys else (made, at % 2)


CHANGES: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "noise": lambda x, _: x + torch.rand(3),
    "a coin": lambda x, _: x.flip(0) + (np.random.default_rng().random() < 0.5),
    "seldom": lambda x, reads: x * (reads % 7 > 0),
    "a counter": lambda x, reads: x + reads,
    "several inputs": lambda x, reads: {"a": x, "b": x + reads},
}


@pytest.mark.parametrize("change", CHANGES)
def test_items_that_differ_when_read_again_are_refused(change):
    for keys in (False, True)[: 1 if change == "several inputs" else 2]:
        with pytest.raises(covey.DataError, match=r"data\.augment"):
            clients_of({"a": Augmented(CHANGES[change], keys=keys)})


def test_items_that_stay_are_read():
    (own,) = clients_of({"a": Augmented(lambda x, _: x / 3, keys=False)}).values()
    assert len(own.train) == 100


RAGGED = [np.arange(3 + at % 3) for at in range(20)]
SEQUENCES: dict[str, Any] = {
    "lists": ([list(map(int, ids)) for ids in RAGGED], LABELS),
    "arrays": (RAGGED, LABELS),
    "tensors": ([torch.from_numpy(ids) for ids in RAGGED], LABELS),
    "an array of objects": (np.array(RAGGED, dtype=object), LABELS),
    "items": [(torch.from_numpy(ids), int(y)) for ids, y in zip(RAGGED, LABELS, strict=True)],
    "dicts": [{"ids": ids, "label": y} for ids, y in zip(RAGGED, LABELS, strict=True)],
    "a column": {"ids": RAGGED, "label": LABELS},
    "a table": pd.DataFrame({"ids": RAGGED, "label": LABELS}),
    "one of several inputs": ({"ids": RAGGED, "mask": RAGGED}, LABELS),
}


@pytest.mark.parametrize("form", SEQUENCES)
def test_sequences_of_several_lengths_are_refused_with_how_to_pad(form):
    with pytest.raises(covey.DataError, match="pad_sequence") as raised:
        clients_of({"a": SEQUENCES[form]})
    assert "inhomogeneous" not in str(raised.value)


def test_a_nested_tensor_is_refused_with_how_to_pad():
    with pytest.warns(UserWarning, match="prototype"):
        nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])
    with pytest.raises(covey.DataError, match="to_padded_tensor"):
        clients_of({"a": (nested, [0, 1])})


def pair(count, *, ids=False):
    x = np.arange(2 * count).reshape(count, 2)
    return x if ids else x.astype(np.float32), np.arange(count) % 2


def request(*, keeps_ids=False, holdout=0.5):
    spec = PopulationSpec(1, (), "image", holdout, 0, -1, "matched")
    return PopulationRequest(
        folder=Path(),
        label="",
        spec=spec,
        streams=Streams(0),
        preference=lambda _: Preference(0.0, 1.0),
        outputs=lambda labels, _: 1 + int(labels.max()),
        keeps_ids=keeps_ids,
    )


def population_of(**more):
    clients = {"a": pair(4), "b": pair(6), "c": pair(8)}
    return population_of_clients(ClientData(clients=clients, **more), request())[0]


def test_a_client_holds_out_a_share_that_is_drawn_or_its_own_test_examples():
    x, y = pair(8)
    population, notes = population_of_clients({"bob": (x, y), "ada": ((x, y), pair(3))}, request())
    ada, bob = population.clients
    assert (ada.name, len(ada.train), len(ada.holdout)) == ("ada", 8, 3)
    assert (bob.name, len(bob.train), len(bob.holdout)) == ("bob", 4, 4)
    drawn = torch.cat([bob.train.inputs, bob.holdout.inputs]).tolist()
    assert drawn != x.tolist()  # 1 in 8! by chance
    assert sorted(drawn) == x.tolist()
    assert "1 of 2 clients have test examples of their own" in notes[0]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"groups": {"a": "x", "b": "x"}}, "groups must .* found 'c' missing"),
        ({"groups": dict.fromkeys("abc", "x")}, "test must .* found 'x' missing"),
        (
            {"groups": dict.fromkeys("abc", "x"), "test": {"x": 0, "y": 0}},
            "test must .* found 'y' only there",
        ),
    ],
)
def test_groups_of_which_not_all_is_known_are_refused(more, message):
    with pytest.raises(DataError, match=message):
        population_of(**more)
