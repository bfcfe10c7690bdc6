"""Whole runs with a model of several inputs, which end in the models of one that parts them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from covey import (
    ClientData,
    Config,
    DataError,
    ModelError,
    Params,
    Run,
    Streams,
    audit_model,
    resume,
    run,
)
from covey.data.data_hash import data_hash
from covey.flower.client_runtime import ClientSecrets, client_runtime_of
from covey.settings.clients import Overrides, population_and_notes
from covey.settings.run import build_run

SETTINGS: Mapping[str, Any] = {
    "rounds": 4,
    "method": {"num_clusters": 2},
    "train": {"learning_rate": 0.3, "local_epochs": 2},
    "risk": {"every": 2},
}


class Words(nn.Module):
    """Two scores of the words that are not masked, and of two numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.scores = nn.Embedding(7, 4), nn.Linear(6, 2)

    def forward(self, ids: Tensor, mask: Tensor, numbers: Tensor) -> Tensor:
        words = (self.embedding(ids) * mask[..., None]).sum(dim=1)
        return self.scores(torch.cat([words, numbers], dim=1))


class Joined(Words):
    """The same, of one tensor."""

    def forward(self, inputs: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ids, mask, numbers = inputs.split([5, 5, 2], dim=1)
        return super().forward(ids.long(), mask.bool(), numbers)


def parts(count: int = 40) -> dict[str, tuple[dict[str, Tensor], Tensor]]:
    draws = torch.Generator().manual_seed(0)
    ids = torch.randint(7, (4, count, 5), generator=draws)
    mask = torch.rand(4, count, 5, generator=draws) < 0.7
    numbers = torch.randn(4, count, 2, generator=draws)
    labels = (((ids > 2) & mask).sum(dim=2) + numbers[..., 0] > 2).long()
    return {
        f"c{i}": ({"ids": ids[i], "mask": mask[i], "numbers": numbers[i]}, labels[i])
        for i in range(4)
    }


def joined() -> dict[str, tuple[Tensor, Tensor]]:
    return {
        name: (torch.cat([each.float() for each in inputs.values()], dim=1), labels)
        for name, (inputs, labels) in parts().items()
    }


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("several") / "run"
    return run(Words, parts(), Config.of(SETTINGS), out=out)


def models(run: Run) -> list[Params]:
    return [run.params(j) for j in range(2)]


def test_the_models_are_those_of_one_tensor_to_the_bit(several: Run, tmp_path: Path):
    plain = run(Joined, joined(), Config.of(SETTINGS), out=tmp_path / "run")
    assert several.summary.accuracy == plain.summary.accuracy
    for own, other in zip(models(several), models(plain), strict=True):
        assert list(own) == list(other)  # and no name has a prefix
        assert all(torch.equal(own[name], other[name]) for name in own)
    risks = [[c.risk for c in each.summary.clusters] for each in (several, plain)]
    assert risks[0] == risks[1]
    assert any(risk is not None for risk in risks[0])


@pytest.mark.parametrize("engine", ["reference", "vmap"])
def test_every_engine_calls_the_model_alike(several: Run, engine: str, tmp_path: Path):
    settings = {**SETTINGS, "engine": {"name": engine}}
    found = run(Words, parts(), Config.of(settings), out=tmp_path / "run")
    for own, other in zip(models(found), models(several), strict=True):
        for name in own:
            torch.testing.assert_close(own[name], other[name], rtol=0, atol=1e-5)


def test_by_position_it_is_the_same_model_that_an_audit_attacks_and_a_client_leaves(
    several: Run, tmp_path: Path
):
    clients = {name: (tuple(inputs.values()), y) for name, (inputs, y) in parts().items()}
    again = run(Words, clients, Config.of(SETTINGS), out=tmp_path / "run")
    for own, other in zip(models(again), models(several), strict=True):
        assert all(torch.equal(own[name], other[name]) for name in own)
    found = again.audit(["loss", "weights"], references=2)
    assert any(cluster.attacks for cluster in found.clusters)
    (left,) = again.forget("c3", basis="erasure")
    assert left.answered.option.answer == "retrain"
    assert "c3" not in again.names


def test_a_run_is_not_carried_on_with_inputs_of_other_names(several: Run):
    others = {
        name: ({"idents": i["ids"], "mask": i["mask"], "numbers": i["numbers"]}, y)
        for name, (i, y) in parts().items()
    }
    with pytest.raises(ModelError, match="unexpected keyword argument 'idents'"):
        resume(several.folder, Words, others)


def test_the_hash_of_data_depends_on_every_input_and_on_what_it_is():
    config = Config.of({**SETTINGS, "model": {"name": "python"}})

    def hashed(clients: object) -> str:
        return data_hash(population_and_notes(config, clients, Streams(0))[0])

    expected, seen = hashed(parts()), set[str]()
    assert hashed(parts()) == expected
    for name in ("ids", "mask", "numbers"):
        changed = parts()
        changed["c2"][0][name][3] = ~changed["c2"][0][name][3] if name == "mask" else 1
        seen.add(hashed(changed))
    as_ids = {n: ({**i, "mask": i["mask"].long()}, y) for n, (i, y) in parts().items()}
    seen.add(hashed(as_ids))
    assert len(seen) == 4
    assert expected not in seen


def test_an_embedding_that_is_too_short_is_refused_before_a_run_begins(tmp_path: Path):
    clients = parts()
    clients["c3"][0]["ids"][39, 4] = 7
    with pytest.raises(ModelError, match=r"examples of c3: .* IndexError"):
        run(Words, clients, Config.of(SETTINGS), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Head(nn.Module):
    """A linear head over features that do not train."""

    def __init__(self) -> None:
        super().__init__()
        self.features, self.head = nn.Identity(), nn.Linear(2, 2)

    def forward(self, ids: Tensor, mask: Tensor, numbers: Tensor) -> Tensor:
        return self.head(self.features(numbers))


def test_what_reads_one_tensor_alone_refuses_several(tmp_path: Path):
    out = tmp_path / "run"
    with pytest.raises(ModelError, match="fixed features needs one tensor of inputs"):
        run(Head, parts(), Config.of(SETTINGS), out=out)
    with pytest.raises(DataError, match="'image' needs one tensor of inputs"):
        run(Words, parts(), Config.of({**SETTINGS, "data": {"normalise": "image"}}), out=out)
    with pytest.raises(ModelError, match="unexpected keyword argument"):
        run(clients=parts(), config=Config.of({**SETTINGS, "model": {"name": "mlp"}}), out=out)
    secrets = ClientSecrets("c0", seed=1)
    with pytest.raises(DataError, match="must bring one tensor of inputs"):
        client_runtime_of(
            Config.of(SETTINGS), secrets, Overrides(model=Words, clients={"c0": parts()["c0"]})
        )
    with pytest.raises(DataError, match="members must bring one tensor of inputs"):
        audit_model(Words(), parts()["c0"], parts()["c1"])
    assert not out.exists()


def test_what_a_source_knows_beside_clients_must_be_of_the_same_inputs():
    config = Config.of({**SETTINGS, "model": {"name": "python"}})
    groups = {"c0": "one", "c1": "one", "c2": "two", "c3": "two"}
    test = {"one": parts()["c0"], "two": joined()["c0"]}
    data = ClientData(clients=parts(), groups=groups, test=test)
    with pytest.raises(DataError, match=r"of the clients are .* of test of two"):
        build_run(config, Overrides(model=Words, clients=data))
