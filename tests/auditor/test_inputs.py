"""What members and references may be: whatever iterates, and what was begun before."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)

from auditor.tiny import CLASSES, halves, records, softmax_regression, train
from covey import Attack, ConfigError, DataError, Examples, ModelAudit, Signals, audit_model
from covey.auditor.records import records_of


class Stream(IterableDataset[tuple[Tensor, Tensor]]):
    def __init__(self, *columns: Tensor) -> None:
        self.columns = columns

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(*self.columns, strict=True)  # pyright: ignore[reportReturnType]


class Rows(Dataset[dict[str, Tensor]]):
    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, at: int) -> dict[str, Tensor]:
        return {"x": self.x[at], "label": self.y[at]}


@pytest.mark.parametrize(
    "form",
    [
        lambda x, y: DataLoader(TensorDataset(x, y), batch_size=64),
        lambda x, y: (pair for pair in zip(x, y, strict=True)),
        pytest.param(lambda x, y: TensorDataset(x, y), marks=pytest.mark.slow),
        pytest.param(lambda x, y: DataLoader(Rows(x, y), batch_size=64), marks=pytest.mark.slow),
        pytest.param(Stream, marks=pytest.mark.slow),
        pytest.param(lambda x, y: (x.numpy(), y.numpy().tolist()), marks=pytest.mark.slow),
    ],
    ids=["loader", "generator", "data set", "loader of dicts", "stream", "arrays"],
)
def test_whatever_iterates_gives_the_same_audit(heart, sides, form):
    plain = audit_model(heart, *sides)
    assert audit_model(heart, *(form(*side) for side in sides)).to_json() == plain.to_json()


def _own_collate(items: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
    return default_collate(items)


class Counted(Stream):
    def __len__(self) -> int:
        return len(self.columns[1])


LOADERS = {
    "shuffled": lambda data: DataLoader(data, 64, shuffle=True),
    "without the last": lambda data: DataLoader(data, 64, shuffle=True, drop_last=True),
    "a sampler": lambda data: DataLoader(data, 64, sampler=RandomSampler(data)),
    "one by one": lambda data: DataLoader(data, batch_size=None, shuffle=True),
    "own batches": lambda data: DataLoader(data, 64, shuffle=True, collate_fn=_own_collate),
    "a part": lambda data: DataLoader(Subset(data, range(len(data))), 64, shuffle=True),
    "joined": lambda data: DataLoader(
        ConcatDataset([Subset(data, range(9)), Subset(data, range(9, len(data)))]), shuffle=True
    ),
}


@pytest.mark.parametrize("kind", LOADERS)
def test_a_loader_is_read_in_the_order_of_its_data_set(sides, kind):
    plain = records_of(*sides)
    members, others = (LOADERS[kind](TensorDataset(*side)) for side in sides)
    made = records_of(members, others, by_place=True)
    assert made.digest == plain.digest
    assert made.places.tolist() == plain.places.tolist()


DRAWN = {
    "some of them": lambda data: DataLoader(data, 64, sampler=SubsetRandomSampler(range(150))),
    "some twice": lambda data: DataLoader(
        data, 64, sampler=RandomSampler(data, replacement=True, num_samples=200)
    ),
    "by weight": lambda data: DataLoader(
        data, 64, sampler=WeightedRandomSampler([1.0] * 200, 200, replacement=False)
    ),
    "its own batches": lambda data: DataLoader(
        data,
        batch_sampler=type("Own", (BatchSampler,), {})(RandomSampler(data), 50, drop_last=False),
    ),
    "a stream": lambda data: Stream(*data.tensors),
    "a stream of known length": lambda data: Counted(*data.tensors),
    "a loader of a stream": lambda data: DataLoader(Stream(*data.tensors), 64),
    "pairs": lambda data: zip(*data.tensors, strict=True),
}


@pytest.mark.parametrize("kind", DRAWN)
@pytest.mark.parametrize("naming", ["references", "groups"])
def test_what_has_only_an_order_of_its_own_cannot_be_named_by_places(heart, sides, kind, naming):
    names = {"references": train, "groups": ["a"] * 400}[naming]
    drawn = [DRAWN[kind](TensorDataset(*side)) for side in sides]
    with pytest.raises(DataError, match="order"):
        audit_model(heart, *drawn, **{naming: names})


def test_groups_and_columns_of_tables_are_joined_by_name(heart, sides):
    x, y = (torch.cat(both).numpy() for both in zip(*sides, strict=True))
    frame = pd.DataFrame(x, columns=[f"x{at}" for at in range(x.shape[1])]).assign(y=y)
    group = pd.Series(np.where(np.arange(len(y)) % 3, "many", "few"))
    mixed = frame.sample(frac=1, random_state=0)
    inside = mixed.index < len(y) // 2
    plain = audit_model(heart, *sides, groups=list(group), attacks=["loss"])
    turned = mixed[mixed.columns[::-1]]
    audit = audit_model(heart, mixed[inside], turned[~inside], groups=group, attacks=["loss"])
    assert audit.to_json() == plain.to_json()


def test_batches_that_do_not_fit_together_are_refused_as_data(heart):
    ragged = [(torch.zeros(at % 3 + 1), torch.tensor(0)) for at in range(40)]
    loader = DataLoader(ragged, 1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(DataError):
        audit_model(heart, loader, loader)


class CutError(Exception):
    """As if the process had ended."""


def test_an_audit_that_was_cut_off_trains_no_reference_twice(heart, sides, audit, tmp_path):
    calls = list[int]()

    def cut(examples: Examples, seed: int) -> nn.Module:
        if len(calls) == 2:
            raise CutError
        calls.append(seed)
        return train(examples, seed)

    folder = tmp_path / "references"
    with pytest.raises(ConfigError, match="Cut"):
        audit_model(heart, *sides, references=cut, num_references=4, folder=folder)
    assert len(list(folder.iterdir())) == 2
    seen = list[int]()

    def rest(examples: Examples, seed: int) -> nn.Module:
        assert seed not in calls
        calls.append(seed)
        return train(examples, seed)

    again = audit_model(
        heart, *sides, references=rest, num_references=4, folder=folder, observe=seen.append
    )
    assert (len(calls), seen) == (4, [3, 4])
    assert again.to_json() == audit.to_json()
    other = halves(seed=1)
    model = train(Examples(*other.members), seed=1)
    audit_model(model, *other, references=train, num_references=2, folder=folder)
    assert len(list(folder.iterdir())) == 6  # other records are no answers to these


def test_a_kept_reference_that_is_damaged_is_named(heart, sides, tmp_path):
    audit_model(heart, *sides, references=train, num_references=2, folder=tmp_path)
    damaged = min(tmp_path.iterdir())
    damaged.write_bytes(damaged.read_bytes()[:-9])
    with pytest.raises(DataError, match=damaged.name):
        audit_model(heart, *sides, references=train, num_references=2, folder=tmp_path)


@pytest.mark.slow
def test_no_figure_depends_on_the_number_of_workers(heart, sides, audit):
    many = audit_model(heart, *sides, references=train, num_references=4, workers=2)
    assert many.to_json() == audit.to_json()


class Margin(Attack):
    needs: ClassVar = "none"

    def __call__(self, signals: Signals) -> np.ndarray:
        rows, others = np.arange(len(signals.labels)), signals.target.copy()
        others[rows, signals.labels] = -np.inf
        return signals.target[rows, signals.labels] - others.max(axis=1)


def ahead_of_references(signals: Signals) -> np.ndarray:
    rows = np.arange(len(signals.labels))
    theirs = signals.references.mean(axis=1)[rows, signals.labels]
    return signals.target[rows, signals.labels] - theirs


def test_ones_own_attack_takes_ten_lines_and_says_what_it_needs(heart, sides):
    audit = audit_model(heart, *sides, attacks=["loss", Margin(), ahead_of_references])
    (own,) = set(audit.attacks) - {"loss"}
    assert float(audit.figure(own, "auc")) > 0.9
    (other,) = audit.withheld.values()
    assert "there are none" in other
    both = audit_model(
        heart, *sides, references=train, num_references=2, attacks=[ahead_of_references]
    )
    assert "Members can be distinguished" in both.verdict


def test_the_group_that_is_found_most_is_named(sides):
    # a model that has learnt the labels of every second member by heart, and no other
    x, y = sides.members
    model = train(Examples(x[::2], y[::2]), seed=1)
    groups = ["even", "odd"] * 200
    audit = audit_model(model, *sides, groups=groups)
    assert audit.worst is not None
    kind, name, accuracy = audit.worst
    assert (kind, name) == ("group", "even")
    assert float(accuracy) > 0.9
    record = json.loads(audit.to_json())
    assert record["worst"]["name"] == "even"
    assert set(record["attacks"]["loss"]["by_group"]) == {"even", "odd"}
    assert abs(float(audit.attacks["loss"].by_group["odd"].auc) - 0.5) < 0.15
    with pytest.raises(DataError, match="each of the 400 records"):
        audit_model(model, *sides, groups=groups[:-1])


def area(audit: ModelAudit, attack: str) -> float:
    return float(audit.figure(attack, "auc"))


def test_the_last_layer_of_a_linear_model_gives_away_what_its_losses_hide():
    (x, y), (u, v) = halves(60, seed=3, learnable=True)
    audit = audit_model(
        softmax_regression((x, y)), (x, y), (u, v), attacks=["loss", "weights", "inverse-hessian"]
    )
    assert area(audit, "loss") < 0.75
    assert min(area(audit, "inverse-hessian"), area(audit, "weights")) > area(audit, "loss") + 0.05


def test_what_looks_into_a_model_is_withheld_where_only_answers_are_known(heart, sides):
    attacks = ["loss", "weights", "gradient-norm"]
    audit = audit_model(lambda x: heart(x), *sides, attacks=attacks)
    assert set(audit.attacks) == {"loss"}
    assert all("Pass the nn.Module" in audit.withheld[name] for name in attacks[1:])
    inside = audit_model(heart, *sides, attacks=attacks)
    assert area(inside, "gradient-norm") > 0.9


def test_gradients_are_those_of_each_record_alone(heart, sides):
    seen = list[float]()

    def norms(signals: Signals) -> np.ndarray:
        assert signals.gradients is not None
        seen.extend(
            float(sum(g.square().sum() for g in gradient.values()))
            for gradient in signals.gradients()
        )
        seen.extend(signals.target[np.arange(len(signals.labels)), signals.labels])
        return np.array(seen[: len(signals.labels)])

    norms.needs = "none"  # pyright: ignore[reportFunctionMemberAccess]
    audit_model(heart, *sides, attacks=[norms])
    for norm, log_prob in zip(seen[:40], seen[400:440], strict=True):
        x, y = torch.cat([sides[0][0], sides[1][0]]), torch.cat([sides[0][1], sides[1][1]])
        losses = nn.functional.cross_entropy(heart(x), y, reduction="none")
        at = int((losses.double() + log_prob).abs().argmin())
        own = torch.autograd.grad(losses[at], list(heart.parameters()))
        assert norm == pytest.approx(float(sum(g.square().sum() for g in own)), rel=1e-3, abs=1e-9)


def test_records_of_several_lengths_of_loss_have_a_tail():
    # 1,500 of each; the members' losses are all small, 30% of the others' are not
    x, y = records(3000, seed=5)
    member = torch.arange(3000) < 1500
    surely = member | (torch.rand(3000, generator=torch.Generator().manual_seed(0)) < 0.7)
    scores = nn.functional.one_hot(torch.where(surely, y, (y + 1) % CLASSES), CLASSES) * 5.0
    table = {row.numpy().tobytes(): score for row, score in zip(x, scores, strict=True)}

    def model(inputs: Tensor) -> Tensor:
        return torch.stack([table[row.numpy().tobytes()] for row in inputs])

    audit = audit_model(model, (x[member], y[member]), (x[~member], y[~member]), attacks=["loss"])
    share = float((~surely[1500:]).float().mean())
    assert float(audit.tail) == pytest.approx(share)
    assert audit.least_fpr == pytest.approx(10 / 1500)


def test_above_the_limit_is_what_is_unknown_too(audit, heart, sides, tmp_path: Path):
    assert audit.exceeds(0.9)
    assert not audit.exceeds(1.0)
    nothing = audit_model(heart, *(tuple(tensor[:5] for tensor in side) for side in sides))
    assert nothing.refused
    assert nothing.exceeds(1.0)
