"""What cannot be is refused in one sentence with exit code 2, and nothing is written."""

import json
import shutil
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from cli.conftest import SMALL, refused, sets
from covey.base import errors
from covey.cli.app import exit_code
from recorded import contents

COMMANDS_PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
LEAVER, OTHER = "client-00003", "client-00001"
THREE_CLASSES = """
from torch import nn
def small(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with what commands are pointed at, in which they run."""
    (tmp_path / "occupied").mkdir()
    (tmp_path / "occupied" / "thesis.tex").touch()
    (tmp_path / "file").touch()
    (tmp_path / "default.toml").touch()
    (tmp_path / "three_classes.py").write_text(THREE_CLASSES)
    (tmp_path / "npz").mkdir()
    np.savez(tmp_path / "npz" / "one.npz", x=np.zeros((3, 2)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["train.foo=1"], "Unknown setting 'train.foo'"),
        (["trian.lr=1"], "Unknown setting 'trian'"),
        (["rounds=-3"], "rounds = -3 is not possible"),
        (["train.learning_rate=fast"], "train.learning_rate = 'fast'"),
        (["engine.name=rax"], "engine.name = 'rax' is not possible"),
        (["privacy.client_noise=1.0"], "found client_clip = 0. Set it"),
        (["privacy.record_noise=1.0"], "found privacy.record_clip = 0"),
        (["privacy.selection_noise=1.0"], "Set method.initialisation ="),
        (["population.clients=100"], "Lower population.clients"),
        (["population.exclude=['nobody']"], "no such client"),
        (["population.preferences=who.csv"], "who.csv"),
        (["model.name=nowhere:factory"], "nowhere"),
        (["model.name=collections:OrderedDict"], "must return an nn.Module"),
        (["model.name=three_classes:small"], "Give its last layer 10 outputs"),
        (["model.name=vgg"], "vgg needs images"),
        (["method.selection=nowhere:rule"], "method.selection"),
        (["data.name=mnist", "data.dir=."], "train-images-idx3"),
        (["data.name=npz", "data.dir=npz"], "one.npz"),
        (["aggregation.noise=sound"], "is a setting of aggregation.name = 'anonymity-sets'"),
        (
            ["aggregation.name=anonymity-sets", "aggregation.noise=sound"],
            "needs partition = 'public-random'",
        ),
        (
            [
                *("aggregation.name=anonymity-sets", "aggregation.min_anonymity=4"),
                "aggregation.deniability_threshold=5",
            ],
            "at most k = 4, found x = 5. Lower x or raise k.",
        ),
        (
            ["aggregation.name=anonymity-sets", "aggregation.min_anonymity=999"],
            "at most as many as there are, 40, found 999. Lower k.",
        ),
        (
            ["aggregation.name=anonymity-sets", "method.name=local"],
            "but method.name = 'local' rules it out",
        ),
        (
            ["aggregation.name=anonymity-sets", "leaving.store_updates=2"],
            "Set leaving.store_updates = 0",
        ),
        # what markup would eat
        (["population.minority=[25, 0]"], "with low <= high, found [25.0, 0.0]"),
        (["model.name=[red]"], "model.name = '[red]' is not possible"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_settings_that_cannot_be(here, settings, said):
    before = contents(here)
    refused(said, "run", *sets(*settings))
    assert contents(here) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run missing.toml", "no config file missing.toml"),
        ("run --out occupied", "is not a covey run"),
        ("run --out file", "is not a covey run"),
        ("run --frob[red]nicate", "--frob[red]nicate"),
        ("run --out RAN", "covey resume"),
        ("resume nowhere", "not a covey run"),
        ("report nowhere", "not a covey run"),
        ("report nowhere elsewhere --sign", "signs the report of one run, found 2"),
        ("export nowhere --cluster 0", "not a covey run"),
        ("export nowhere --round first", "--round takes a round"),
        ("export RAN --client client-99999", "of a client 'client-99999' is recorded"),
        ("export RAN --cluster 7", "7"),
        ("config data frobnicate", "list or check"),
        ("config init --out default.toml", "Give another"),
        ("config init --out no/folder.toml", "no/folder.toml"),
        ("config data list --log-file no/log.txt", "--log-file must be a file that can be written"),
        ("sweep missing.toml --over seed", "--over takes"),
        ("sweep missing.toml --over [blue]", "found '[blue]'"),
        ("sweep missing.toml --over seed=1,2", "no config file"),
        ("sweep default.toml --over aggregation.radius=1,2", "changes no run of this sweep"),
        ("sweep default.toml --over seed=1,2", "its seeds are those of --seeds"),
        ("sweep default.toml --over risk.shadows=2,4", "= 'shadow', found 'federated'"),
        (
            "sweep default.toml --over population.risk_weight=0,1 --over risk.name=none",
            "--over population.risk_weight",
        ),
        (
            "sweep default.toml --over method.selection=loss,weighted --over "
            "method.name=fedavg,local",
            "--over method.selection changes no run",
        ),
        ("runs list nowhere", "nowhere"),
        ("audit default.toml", "not a covey run"),
        ("audit RAN --attack nonsense", "must be one of loss, shokri"),
        ("audit RAN --attack nowhere:f", "importing it failed"),
        ("audit RAN --references 1", "at least 2 references"),
        ("audit RAN --game participation", "at least 5 reserved clients"),
        ("audit RAN --game chess", "--game takes participation, found 'chess'"),
        ("audit RAN --control", "Add --game participation"),
        ("audit RAN --game participation --attack loss", "Give two commands"),
        ("guarantee", "covey guarantee"),
        ("guarantee --noise client", "covey guarantee"),
        ("guarantee --noise client --sigma 1 --epsilon 1", "covey guarantee"),
        ("guarantee --noise paper --sigma 0", "covey guarantee"),
        ("guarantee --noise paper --sigma 1 --deniability", "covey guarantee"),
        ("deploy init default.toml --out fed --node a/b", "found 'a/b'"),
        ("deploy init no.toml --out fed --node a", "no config file no.toml"),
        ("deploy check fed", "deploy.toml says which"),
        ("deploy status fed", "deploy.toml says which"),
        ("deploy try --out occupied", "must be a new folder"),
        ("reproduce", "takes an experiment, `all`, or --list"),
        ("reproduce table-9 --quick --out x", "There is no experiment 'table-9'"),
        ("reproduce ifca-mir-figure-8 --column MNIST,", "takes one of 'MNIST', 'FEMNIST'"),
        ("reproduce ifca-mir-figure-8 --set rounds", "--set takes section.key=value"),
        ("reproduce ifca-mir-figure-8 --set round=1", "Unknown setting 'round'"),
        ("reproduce ifca-mir-figure-8 --repeats -1", "--repeats"),
        # leaving
        ("explain nowhere", "a run and a client's name"),
        ("explain nowhere X", "nowhere is not a covey run"),
        ("forget nowhere X --answer auto", "nowhere is not a covey run"),
        ("forget HIDDEN", "no client is named"),
        ("forget HIDDEN --received nothing", "nothing"),
        (f"forget HIDDEN {LEAVER}", "neither --answer nor --basis is named"),
        (f"forget HIDDEN {LEAVER} --basis gdpr", "basis takes erasure, withdrawal, objection"),
        (
            f"forget HIDDEN {LEAVER} --basis erasure --answer deny",
            "a denial removes nothing from the model",
        ),
        (
            f"forget HIDDEN {LEAVER} --basis restriction --answer retrain",
            "deletes the client's name",
        ),
        (f"forget HIDDEN {LEAVER} {OTHER} --salt 00 --answer retrain", "found 2 names"),
        (f"forget HIDDEN {LEAVER} --salt 0g --answer retrain", "A salt is hexadecimal"),
        (
            f"forget HIDDEN {LEAVER} --salt {'00' * 16} --answer retrain",
            f"has no client '{LEAVER}'",
        ),
        ("forget HIDDEN nobody --basis none", "has no client 'nobody'"),
        (f"forget HIDDEN {LEAVER} nobody --answer auto", "has no client 'nobody'"),
        (f"forget HIDDEN {LEAVER} --answer roll_back", "too small, and none would"),
        (f"forget HIDDEN {LEAVER} --answer calibrate", "this run stores none"),
        (f"forget HIDDEN {LEAVER} --answer erase", "answer takes auto, deny"),
        (f"forget PLAIN {LEAVER} --answer auto", "Only a run that hides updates in anonymity"),
        (f"forget PLAIN {LEAVER} --answer roll_back", "Only a run that hides updates"),
        (f"forget STORED {LEAVER} --answer deny", "this run keeps raw updates"),
        (f"forget STORED {LEAVER} --answer auto", "this run keeps raw updates"),
        (f"forget LOCAL {LEAVER} --answer auto", "Delete that client's model instead"),
        ("ledger head nowhere", "nowhere"),
    ],
)
def test_words_that_cannot_be(here, ran, runs, words, said):
    known = {"RAN": ran[0], **{kind.name.upper(): kind for kind in runs.iterdir()}}
    asked = [known.get(word, word) for word in words.split(" ")]
    folders = [here, *(word for word in asked if isinstance(word, Path))]
    before = list(map(contents, folders))
    refused(said, *asked)
    assert list(map(contents, folders)) == before


@pytest.mark.parametrize(
    ("words", "kind", "said"),
    [
        (["--frobnicate"], "UsageError", "No such option"),
        (sets("ledger.url=nonsense://x"), "LedgerUnavailable", "Give a path, sqlite:///PATH"),
        (sets("ledger.url=postgresql://u@h/d"), "LedgerUnavailable", "End it with ?run=NAME"),
        (sets("ledger.url=nowhere/ledger.sqlite"), "LedgerUnavailable", "No such file"),
        (
            sets("ledger.url=postgresql://u@127.0.0.1:1/d?run=a"),
            "LedgerUnavailable",
            "Check the URL",
        ),
    ],
)
def test_an_error_is_one_json_object_too(covey, tmp_path, words, kind, said):
    code, out, err = covey("run", *SMALL, *words, "--json")
    told = json.loads(out)["error"]
    assert (code, told["type"], told["exit_code"]) == (2, kind, 2)
    assert said in told["message"]
    assert said in err.replace("\n", " ")
    assert list(tmp_path.iterdir()) == []


def test_without_psycopg_the_start_says_what_to_install(here, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    url = "ledger.url=postgresql://u@127.0.0.1:1/d?run=a"
    refused("Install covey[postgres]", "run", *SMALL, *sets(url))


def test_an_error_after_the_answer_adds_no_second_object(covey, tmp_path):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(b"no data")
    code, out, err = covey("config", "data", "check", "--dir", tmp_path, "--json")
    assert code == 2
    assert "not the published ones" in err
    assert "files" in json.loads(out)


def test_an_error_that_nobody_foresaw_is_a_sentence_too(covey, monkeypatch):
    def surprising(**_: object) -> int:
        raise AttributeError("'list' object has no attribute 'items'")

    monkeypatch.setattr(import_module("covey.cli.app"), "all_commands", lambda: surprising)
    code, out, err = covey("report", "run", "--json")
    assert code == 2
    assert "AttributeError" in err
    assert json.loads(out)["error"]["type"] == "AttributeError"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        *((f"{each}Error", 2) for each in ("Config", "Data", "Model", "Run")),
        *(("LedgerUnavailable", 2), ("LedgerLocked", 2), ("LedgerMismatch", 1), ("LedgerError", 1)),
    ],
)
def test_exit_codes_tell_a_failed_check_from_bad_input(kind, code):
    assert exit_code(getattr(errors, kind)("")) == code
    assert f"`{kind}`" in COMMANDS_PAGE.read_text()


def test_a_run_that_was_there_before_stays_whatever_fails(covey, tmp_path, ran):
    run = tmp_path / "run"
    run.mkdir()
    settings = (ran[0] / "config.toml").read_text()
    (run / "config.toml").write_text(settings.replace('url = ""', 'url = "no://x"'))
    assert covey("resume", run)[0] == 2
    assert [each.name for each in run.iterdir()] == ["config.toml"]


def test_the_last_client_cannot_leave(covey, copy):
    folder = copy("pair")
    assert covey("forget", folder, "client-00000", "--answer", "retrain")[0] == 0
    before = contents(folder)
    refused("this client is the last one", "forget", folder, "client-00001", "--answer", "retrain")
    assert contents(folder) == before


DEEP = b"[" * 100_000
DAMAGED = {
    "empty": b"",
    "zeros": bytes(1_000),
    "no text": b"\xff\xfe\xed\xa0\x80",
    "deep JSON": DEEP,
    "deep TOML": b"a = " + DEEP,
    "a long number": b'{"a": ' + b"9" * 6_000 + b"}",
    "a long number in TOML": b"rounds = " + b"9" * 6_000,
    "a list": b"[1, 2]",
    "an object": b"{}",
    "half a character": b'{"a": "\\ud800"}',
}
SOME = ("deep JSON", "a list")
"""Kinds of damage that every test of every day tries; the slow suite tries all."""
EVERY_KIND = [
    kind if kind in SOME else pytest.param(kind, marks=pytest.mark.slow) for kind in DAMAGED
]


@pytest.fixture(scope="module")
def answered(runs, ask, tmp_path_factory):
    """A run with a client that left, and an export."""
    path = shutil.copytree(runs / "plain", tmp_path_factory.mktemp("damaged") / "run")
    ask("forget", path, LEAVER, "--answer", "retrain", "--basis", "erasure")
    ask("export", path, "--cluster", 0)
    return path


@pytest.mark.parametrize("damage", EVERY_KIND)
def test_whatever_stands_in_a_file_of_a_run(covey, answered, tmp_path, damage):
    run = tmp_path / "run"
    (proof,) = (each.name for each in (answered / "proofs").glob("*.json"))
    for name, words in (
        ("config.toml", ["explain", run, OTHER]),
        ("config.toml", ["resume", run]),
        (f"proofs/{proof}", ["verify", run / "proofs" / proof, "--ledger", run]),
        ("copies/*.json", ["export", run, "--cluster", 0]),
        ("asking/request.json", ["resume", run]),
        ("ledger.sqlite", ["explain", run, OTHER]),
        ("ledger.sqlite", ["report", run]),
    ):
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(answered, run)
        (run / "asking").mkdir(exist_ok=True)
        for path in list(run.glob(name)) or [run / name]:
            path.write_bytes(DAMAGED[damage])
        code, _, err = covey(*words)
        assert "Traceback" not in err
        assert "not expected" not in err.replace("\n", " "), (name, damage, err)
        assert code in (1, 2), (name, words, err)


@pytest.mark.parametrize("damage", EVERY_KIND)
def test_whatever_stands_in_a_file_that_is_given(covey, tmp_path, damage):
    given = tmp_path / "given.toml"
    given.write_bytes(DAMAGED[damage])
    out = ["--out", tmp_path / "out"]
    playing = [["run", given, *out], ["run", *sets(f"population.preferences={given}"), *out]]
    for words in (*(playing if damage != "empty" else []), ["verify", given]):
        code, _, err = covey(*words)
        assert code in (1, 2), (words, err)
        assert "not expected" not in err.replace("\n", " ")
