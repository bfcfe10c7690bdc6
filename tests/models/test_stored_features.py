"""A user's network sees every record once: its rows are kept in a file until a client leaves."""

import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import covey
from covey import Examples, RunError
from covey.data.examples import hashes
from covey.models.feature_store import FeatureStore
from covey.models.linear_head import LinearHeadNetwork

seen: list[int] = []
"""How many examples the network saw, call by call."""


class Network(nn.Module):
    """Stand-in for a backbone."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 5)

    def forward(self, images: Tensor) -> Tensor:
        if images.any():  # a trial is of zeros
            seen.append(len(images))
        return self.layer(images.flatten(1)).relu()


SETTINGS = {
    "rounds": 2,
    "method": {"name": "fedavg"},
    "population": {"clients": 4, "examples_per_client": 30, "audit_examples": 9},
    "risk": {"name": "none"},
    "model": {"name": "linear-head", "features": f"{__name__}:Network"},
}


@pytest.fixture
def unseen(monkeypatch):
    monkeypatch.delenv("COVEY_FEATURES", raising=False)
    seen.clear()


def equal(examples: np.ndarray | None, expected: np.ndarray) -> bool:
    return examples is not None and np.array_equal(examples, expected)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def rows_in(path) -> int:
    with closing(sqlite3.connect(path)) as file:
        return file.execute("SELECT count(*) FROM rows").fetchone()[0]


@pytest.mark.usefixtures("unseen")
def test_every_record_is_seen_once_whatever_is_done_with_the_run(tmp_path):
    run = covey.run(config=SETTINGS, out=tmp_path / "run")
    population = covey.load(run.folder)._playable("").population
    of_server = sum(map(len, (*population.test, *population.non_members)))
    of_clients = sum(len(client.train) + len(client.holdout) for client in population.clients)
    # a trial of the engine sees the first client's first batch beforehand
    assert of_clients + of_server <= sum(seen) <= of_clients + of_server + 2 * 30
    stored = run.folder / "features.sqlite"
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600
    seen.clear()
    again = covey.load(run.folder)
    again.audit(references=2)
    assert not seen


@pytest.mark.usefixtures("unseen")
@pytest.mark.parametrize(
    "sections",
    [
        {"method": {"name": "ridge", "num_clusters": 1}},
        {"method": {"name": "ifca", "num_clusters": 2, "initialisation": "warm"}},
        {"privacy": {"record_clip": 1.0, "record_noise": 4.0, "exposure": "accepted"}},
        {"privacy": {"record_clip": 1.0, "record_noise": 1.0, "noise_model": "local"}},
        {"privacy": {"secure_sums": True, "min_cohort": 3}},
        {"engine": {"name": "vmap"}},
    ],
    ids=["ridge", "ifca", "own exposure", "DP-SGD", "masks", "vmap"],
)
def test_every_way_to_train_a_head_sees_a_record_once(tmp_path, sections):
    run = covey.run(config={**SETTINGS, **sections}, out=tmp_path / "run")
    assert run.summary.rounds == 2
    records = rows_in(run.folder / "features.sqlite")
    assert records <= sum(seen) <= records + 2 * 30


@pytest.mark.usefixtures("unseen")
def test_a_client_that_leaves_takes_its_rows_along(tmp_path):
    run = covey.run(config=SETTINGS, out=tmp_path / "run")
    left = next(c for c in run._playable("").population.clients if c.name == "client-00001")
    stored = run.folder / "features.sqlite"
    before = rows_in(stored)
    records = len({*hashes(left.train.inputs), *hashes(left.holdout.inputs)})
    (place,) = (p for p in run.explain("client-00001").places if p.kind == "features")
    assert place.path == str(stored.absolute())
    seen.clear()
    run.forget("client-00001", answer="retrain")
    assert rows_in(stored) == before - records
    assert not seen
    assert covey.load(run.folder).resume().summary.rounds == 2
    assert rows_in(stored) == before - records


@pytest.mark.usefixtures("unseen")
def test_what_was_kept_before_a_folder_was_shared_goes_as_well(tmp_path, monkeypatch):
    run = covey.run(config=SETTINGS, out=tmp_path / "run")
    before = rows_in(run.folder / "features.sqlite")
    monkeypatch.setenv("COVEY_FEATURES", str(tmp_path / "shared"))
    run.forget("client-00001", answer="stop")
    assert rows_in(run.folder / "features.sqlite") < before


@pytest.mark.usefixtures("unseen")
def test_runs_share_the_folder_that_a_user_names(tmp_path, monkeypatch):
    monkeypatch.setenv("COVEY_FEATURES", str(tmp_path / "shared"))
    one = covey.run(config=SETTINGS, out=tmp_path / "one")
    seen.clear()
    two = covey.run(config={**SETTINGS, "rounds": 3}, out=tmp_path / "two")
    assert not seen
    assert not (two.folder / "features.sqlite").exists()
    monkeypatch.delenv("COVEY_FEATURES")
    three = covey.run(config=SETTINGS, out=tmp_path / "three")
    for name, value in one.params(0).items():
        assert torch.equal(value, three.params(0)[name])


@pytest.mark.usefixtures("unseen")
@pytest.mark.parametrize("harm", ["cut", "flipped", "view", "text"])
def test_a_damaged_file_is_computed_anew(tmp_path, harm):
    run = covey.run(config={**SETTINGS, "rounds": 1}, out=tmp_path / "run")
    stored = run.folder / "features.sqlite"
    content = bytearray(stored.read_bytes())
    if harm == "view":
        with closing(sqlite3.connect(stored)) as file, file:
            file.execute("DROP TABLE rows")
            file.execute("CREATE VIEW rows AS SELECT 1 AS key, 2 AS row, 3 AS sum")
    else:
        content = content[: len(content) // 2] if harm == "cut" else content
        content = bytearray(b"nothing") if harm == "text" else content
        if harm == "flipped":
            for at in range(4096, len(content), 97):
                content[at] ^= 1
        stored.write_bytes(content)
    again = FeatureStore(stored)
    keys, rows = [bytes([n]) * 16 for n in range(3)], torch.rand(3, 5).numpy()
    again.write("somebody", keys, rows)
    assert equal(again.read(keys), rows)


@pytest.mark.usefixtures("unseen")
def test_a_flipped_row_is_missing_and_not_another_one(tmp_path):
    store, keys = FeatureStore(tmp_path / "features.sqlite"), [b"a" * 16, b"b" * 16]
    store.write("client", keys, ones(2, 3))
    with closing(sqlite3.connect(store.path)) as file, file:
        other = np.array([1, 1, 2], np.float32).tobytes()
        file.execute("UPDATE rows SET row = ? WHERE key = ?", (other, keys[1]))
    assert store.read(keys) is None
    assert equal(store.read(keys[:1]), ones(1, 3))
    store.forget("client")
    assert store.read(keys[:1]) is None


@pytest.mark.usefixtures("unseen")
def test_a_store_that_cannot_be_written_says_what_to_do(tmp_path):
    (tmp_path / "features.sqlite").mkdir()
    with pytest.raises(RunError, match="COVEY_FEATURES"):
        FeatureStore(tmp_path / "features.sqlite").write("c", [b"a" * 16], ones(1, 2))


@pytest.mark.usefixtures("unseen")
def test_nothing_is_written_before_a_run_has_begun(tmp_path):
    store, keys = FeatureStore(tmp_path / "run" / "features.sqlite", may_create=False), [b"k" * 16]
    store.write("public examples", keys, ones(1, 2))
    assert not store.path.parent.exists()
    assert store.read(keys) is None
    store.create()
    assert equal(store.read(keys), ones(1, 2))


PUBLIC = np.random.default_rng(0).integers(0, 256, (300, 1, 8, 8)).astype(np.uint8)


def whitened(path, **more):
    head = {"name": "linear-head", "features": f"{__name__}:Network", "whiten": 1.0, **more}
    return {**SETTINGS, "rounds": 1, "model": {"whiten_from": str(path), "directions": 3, **head}}


@pytest.mark.usefixtures("unseen")
def test_features_are_whitened_by_public_examples(tmp_path):
    """The covariance of what they are whitened by becomes the identity."""
    path = tmp_path / "public.npz"
    np.savez(path, x=PUBLIC, y=np.zeros(300, np.int64))
    run = covey.run(config=whitened(path), out=tmp_path / "run")
    seen.clear()
    module = covey.load(run.folder)._playable("").module
    assert isinstance(module, LinearHeadNetwork)
    features = module.features
    phi = features(torch.from_numpy(PUBLIC) / 255)
    assert features.size == phi.shape[1] == 3
    assert torch.allclose(phi.mean(dim=0), torch.zeros(3), atol=1e-4)
    assert torch.allclose(phi.T.cov(), torch.eye(3), atol=1e-2)
    assert sum(seen) <= 300 + 2 * 30  # by the last line but three, and a trial
    used = run.history.components
    assert used is not None
    assert len(used.components["model.features"]["public"]) == 64
    np.savez(path, x=PUBLIC[::-1].copy() // 2, y=np.zeros(300, np.int64))
    with pytest.raises(RunError, match=r"public examples of model\.features must be what"):
        covey.resume(run.folder)


@pytest.mark.usefixtures("unseen")
def test_public_examples_are_no_clients(tmp_path):
    path, theirs = (
        tmp_path / "public.npz",
        Examples(torch.from_numpy(PUBLIC), torch.arange(300) % 2),
    )
    np.savez(path, x=PUBLIC[:20], y=np.zeros(20, np.int64))
    with pytest.raises(covey.ConfigError, match="found one of b"):
        covey.run(
            clients={"a": theirs.take(torch.arange(20, 99)), "b": theirs.first(10)},
            config=whitened(path),
            out=tmp_path / "run",
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("unseen")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model": {"name": "linear-head", "whiten_from": "mnist"}, "data": {"name": "mnist"}},
            "a data set that is not the clients'",
        ),
        ({"data": {"normalise": "image"}}, "clients' examples as they are"),
        ({"data": {"standardise": "client"}}, "clients' examples as they are"),
    ],
)
def test_public_examples_and_the_clients_own_do_not_mix(changes, message):
    with pytest.raises(covey.ConfigError, match=message):
        covey.Config.of({**whitened("public.npz"), **changes})


@pytest.mark.usefixtures("unseen")
@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("mnist", "must have examples of shape"),
        ("digitz", "must be one of"),
        ("heart-disease", "must be one of"),
        ("no.npz", "no.npz"),
    ],
)
def test_public_examples_fit_and_are_there(tmp_path, named, message):
    if named == "mnist":
        named = tmp_path / "other.npz"
        np.savez(named, x=np.zeros((5, 1, 9, 9), np.uint8), y=np.zeros(5, np.int64))
    with pytest.raises(covey.CoveyError, match=message):
        covey.run(config=whitened(named), out=tmp_path / "run")


@pytest.mark.usefixtures("unseen")
def test_many_write_at_once(tmp_path):
    """Threads that all find no file make one, and none loses what another wrote."""
    store = FeatureStore(tmp_path / "features.sqlite")
    keys = [bytes([n]) * 16 for n in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: store.write("c", keys[n : n + 1], n * ones(1, 2)), range(40)))
    assert equal(store.read(keys), np.arange(40)[:, None] * ones(1, 2))
