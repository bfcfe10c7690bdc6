"""Entries that stay with each client: trained on, measured with, and never sent."""

import re
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import covey
from covey import ConfigError
from covey.algorithms.state import LAYERS, ClientMemory
from covey.base.names import Params
from covey.runs.states import load_state
from support.runs import tiny


class Normed(nn.Module):
    """A layer that all share, statistics of its outputs, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(3, 4)
        self.bn = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.bn(self.body(inputs)).relu())


class Plain(Normed):
    def __init__(self) -> None:
        super().__init__()
        del self.bn

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.body(inputs))


def drawn(make: type[nn.Module]) -> nn.Module:
    with covey.Streams(0).lent_to_torch():
        return make()


def clients(scales: dict[str, float], *, flipped: bool = False) -> dict[str, Any]:
    """Separable examples, on scales of their own; every second client's labels turned round."""
    draws = torch.Generator().manual_seed(0)
    layers: dict[str, Any] = {}
    for place, (name, scale) in enumerate(scales.items()):
        inputs = torch.randn(40, 3, generator=draws)
        inputs[:, 0] += 2 * inputs[:, 0].sign()
        labels = (inputs[:, 0] > 0).long()
        layers[name] = inputs * scale, 1 - labels if flipped and place % 2 else labels
    return layers


def config(*personal: str, **more: Any) -> covey.Config:
    sections: dict[str, Any] = {
        "rounds": 3,
        "method": {"name": "fedavg"},
        "risk": {"name": "none"},
        "model": {"name": "mlp", "personal": list(personal)},
        "population": {"holdout": 0.25},
        "train": {"batch_size": 40, "learning_rate": 0.5, "optimizer": {"momentum": 0.0}},
        **more,
    }
    return tiny(**sections)


def play(folder, model, settings, data) -> covey.Run:
    return covey.run(config=settings, model=model, clients=data, out=folder)


def last_state(run: covey.Run):
    *_, newest = sorted((run.folder / "checkpoints").glob("*.safetensors"))
    return load_state(newest)[0]


def layers_of(run: covey.Run) -> dict[str, Params]:
    memory = last_state(run).get_state(ClientMemory).kept
    return {name: memory[handle][LAYERS] for name, handle in run.names.items() if handle in memory}


TWO = {"near": 1.0, "far": 10.0}


def test_clients_on_other_scales_keep_normalisations_of_their_own(tmp_path):
    module = drawn(Normed)
    run = play(tmp_path / "run", module, config("bn.*"), clients(TWO))
    own, shared = layers_of(run), last_state(run).clusters[0]
    names = {name for name in module.state_dict() if name.startswith("bn.")}
    assert own["near"].keys() == own["far"].keys() == names
    assert shared.keys() == module.state_dict().keys() - names
    assert own["far"]["bn.running_var"].mean() > 20 * own["near"]["bn.running_var"].mean()
    assert own["near"]["bn.num_batches_tracked"] == 3
    # what a user gets, and risk is measured of, has the drawn ones
    assert torch.equal(run.params(0)["bn.running_var"], torch.ones(4))
    assert load_file(run.folder / "frozen.safetensors").keys() == names
    Normed().load_state_dict(run.params(0))


def by_hand(module: nn.Module, data: dict[str, tuple[Tensor, Tensor]], rounds: int):
    """FedPer with one step of gradient descent on all examples per round."""
    names = [name for name, _ in module.named_parameters()]
    start = {n: v.detach().clone() for n, v in module.named_parameters()}
    own = {client: {n: start[n] for n in names if n.startswith("head.")} for client in data}
    shared = {n: start[n] for n in names if n.startswith("body.")}
    for _ in range(rounds):
        moved = []
        for client, (inputs, labels) in data.items():
            weights = {n: v.clone().requires_grad_() for n, v in {**shared, **own[client]}.items()}
            outputs = torch.func.functional_call(module, weights, (inputs,))
            nn.functional.cross_entropy(outputs, labels).backward()
            after = {n: (v - 0.5 * v.grad).detach() for n, v in weights.items()}
            own[client] = {n: after[n] for n in own[client]}
            moved.append({n: after[n] for n in shared})
        shared = {n: sum(params[n] for params in moved) / len(moved) for n in shared}
    return shared, own


@pytest.mark.parametrize("engine", ["reference", "vmap"])
def test_two_clients_go_as_by_hand(tmp_path, engine):
    module, data = drawn(Plain), clients(TWO, flipped=True)
    settings = config("head.*", engine={"name": engine}, population={"holdout": 0.0})
    run = play(tmp_path / "run", module, settings, data)
    shared, own = by_hand(module, data, 3)
    torch.testing.assert_close(dict(last_state(run).clusters[0]), shared, rtol=1e-4, atol=1e-5)
    for name, layers in layers_of(run).items():
        torch.testing.assert_close(dict(layers), own[name], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_who_leaves_leaves_nothing_of_its_own(tmp_path):
    data = clients(dict.fromkeys("abcd", 1.0))
    run = play(tmp_path / "run", drawn(Plain), config("head.*"), data)
    handle = run.names["b"]
    run.forget("b", answer="retrain")
    assert handle not in last_state(run).get_state(ClientMemory).kept
    rest = {name: value for name, value in data.items() if name != "b"}
    never = play(tmp_path / "never", drawn(Plain), config("head.*"), rest)
    personal = layers_of(covey.load(run.folder))
    for name, layers in layers_of(never).items():
        assert all(torch.equal(layers[layer], personal[name][layer]) for layer in layers)


def test_patterns_that_match_nothing_or_all_that_trains_are_refused(tmp_path):
    nothing = "9 parameters or buffers, such as 'body.weight', found 'norm.*'"
    all_of_it = "leave a parameter that trains"
    for patterns, error in ((["bn.*", "norm.*"], nothing), (["*.weight", "*.bias"], all_of_it)):
        with pytest.raises(ConfigError, match=re.escape(error)):
            play(tmp_path / "run", drawn(Normed), config(*patterns), clients(TWO))


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        ({"method": {"name": "ifca"}}, "method.name"),
        ({"leaving": {"store_updates": 1}}, "leaving.store_updates"),
    ],
)
def test_what_cannot_be_had_with_them_is_refused(sections, key):
    with pytest.raises(ConfigError, match=f"{key}.*model.personal|model.personal.*{key}"):
        config("body.*", **sections)
