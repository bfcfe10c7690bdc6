"""Bad input: one clear sentence, exit code 2, and nothing written."""

import gzip
import shutil

import numpy as np
import pytest


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "train.foo=1"], "Unknown setting 'train.foo'"),
        (["--set", "trian.lr=1"], "Unknown setting 'trian'"),
        (["--set", "rounds=-3"], "rounds = -3 is not possible"),
        (["--set", "train.learning_rate=fast"], "train.learning_rate = 'fast'"),
        (["--set", "engine.name=rax"], "engine.name = 'rax' is not possible"),
        (["--set", "privacy.client_noise=1.0"], "found client_clip = 0. Set it"),
        (
            ["--set", "aggregation.noise=sound"],
            "is a setting of aggregation.name = 'anonymity-sets'",
        ),
        (["--set", "privacy.selection_noise=1.0"], "Set method.initialisation ="),
        (["--set", "privacy.record_noise=1.0"], "found privacy.record_clip = 0"),
        (["--set", "population.clients=100"], "Lower population.clients"),
        (["--set", "model.name=nowhere:factory"], "nowhere"),
        (["--set", "model.name=collections:OrderedDict"], "must return an nn.Module"),
        (["--set", "method.selection=nowhere:rule"], "method.selection"),
        (["--set", "population.exclude=['nobody']"], "no such client"),
        (["--set", "model.name=vgg"], "vgg needs images"),
        (["--set", "data.name=mnist", "--set", "data.dir=."], "train-images-idx3"),
        (["missing.toml"], "no config file missing.toml"),
        (["--set", "population.preferences=who.csv"], "who.csv"),
        (["--out", "occupied"], "is not a covey run"),
        (["--out", "file"], "is not a covey run"),
        (["--frobnicate"], "No such option"),
    ],
)
def test_is_refused(covey, tmp_path, words, said):
    (tmp_path / "occupied").mkdir()
    (tmp_path / "occupied" / "thesis.tex").touch()
    (tmp_path / "file").touch()
    before = sorted(tmp_path.rglob("*"))

    code, out, err = covey("run", *words)

    assert code == 2
    assert said in err.replace("\n", " ")
    assert "Traceback" not in err
    assert out == ""
    assert sorted(tmp_path.rglob("*")) == before


def test_a_model_that_does_not_fit_the_classes(covey, tmp_path):
    (tmp_path / "three_classes.py").write_text(
        "from torch import nn\ndef small(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))\n"
    )
    code, _, err = covey("run", "--set", "model.name=three_classes:small")
    assert code == 2
    assert "Give its last layer 10 outputs" in err.replace("\n", " ")


def test_a_corrupt_data_file(covey, tmp_path, real_data):
    folder = tmp_path / "mnist"
    shutil.copytree(real_data / "mnist", folder)
    images = folder / "train-images-idx3-ubyte.gz"
    content = bytearray(gzip.decompress(images.read_bytes()))
    content[1000] ^= 1
    images.write_bytes(gzip.compress(bytes(content), compresslevel=1))
    words = ["--set", "data.name=mnist", "--set", f"data.dir={tmp_path}"]
    code, _, err = covey("run", *words)
    assert code == 2
    assert "train-images-idx3-ubyte" in err


def test_a_client_file_without_labels(covey, tmp_path):
    np.savez(tmp_path / "one.npz", x=np.zeros((3, 2)))
    words = ["--set", "data.name=npz", "--set", f"data.dir={tmp_path}"]
    code, _, err = covey("run", *words)
    assert code == 2
    assert "one.npz" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["resume", "nowhere"], "not a covey run"),
        (["report", "nowhere"], "not a covey run"),
        (["report", "nowhere", "elsewhere", "--sign"], "signs the report of one run, found 2"),
        (["export", "nowhere", "--cluster", "0"], "not a covey run"),
        (["export", "nowhere", "--round", "first"], "--round takes a round"),
        (["explain", "nowhere"], "a run and a client's name"),
        (["config", "data", "frobnicate"], "list or check"),
        (["sweep", "missing.toml", "--over", "seed"], "--over takes"),
        (["sweep", "missing.toml", "--over", "seed=1,2"], "no config file"),
    ],
)
def test_other_commands(covey, tmp_path, words, said):
    code, _, err = covey(*words)
    assert code == 2
    assert said in err.replace("\n", " ")
    assert list(tmp_path.iterdir()) == []
