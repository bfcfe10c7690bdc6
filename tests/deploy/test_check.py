"""Whatever is broken in a federation's folder is found, named, and told how to mend."""

import re
import shutil
import socket
import ssl
import threading
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import tomli_w

from covey import Config, ConfigError, RunError
from covey.settings.load import replace_setting
from covey.settings.schema import check_enough
from covey_flower.deployment import DeploymentPlan, write_federation
from covey_flower.folder_check import FLOWER, Finding, check, trust_in
from deploy.conftest import NOW

ROOT = Path(__file__).parents[2]


def edited(path: str, old: str, new: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        text = (folder / path).read_text()
        assert old in text
        (folder / path).write_text(text.replace(old, new))

    return edit


def named(section: str, old: str, new: str) -> Callable[[Path], None]:
    """Name another component in the server's settings, which keep what it knows."""

    def name(folder: Path) -> None:
        settings = tomllib.loads((folder / "covey.toml").read_text())
        assert settings[section]["name"] == old
        replace_setting(settings, [section, "name"], new)
        (folder / "covey.toml").write_text(tomli_w.dumps(settings))

    return name


def written(path: str, content: bytes) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / path).write_bytes(content)

    return write


def opened(path: str) -> Callable[[Path], None]:
    return lambda folder: (folder / path).chmod(0o640)


def copied(source: str, target: str) -> Callable[[Path], object]:
    return lambda folder: shutil.copy(folder / source, folder / target)


def bad(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    return [(finding.level, finding.about) for finding in findings if finding.level != "ok"]


@pytest.mark.usefixtures("programs")
def test_a_new_folder_is_fine_on_the_server(federate, now):
    folder = federate()
    assert bad(check(folder, now)) == []
    last = check(folder, now)[-1]
    assert (last.about, last.detail) == ("127.0.0.1:8443", "nothing is there yet: start server.sh")


@pytest.mark.usefixtures("programs")
def test_a_new_folder_is_fine_on_a_node_but_for_its_data(federate, now):
    node = federate() / "nodes" / "alice"
    assert bad(check(node, now)) == [("error", "data"), ("warning", "127.0.0.1:8443")]
    edited("node.toml", '# data = "examples.npz"', 'data = "mine.npz"')(node)
    for labels, said in (
        (np.arange(2), "found (3, 1, 8, 8) and (2,)"),
        (np.array([{}] * 3), "plain arrays"),
        (np.arange(3), "3 examples"),
    ):
        np.savez(node / "mine.npz", x=np.zeros((3, 8, 8), np.uint8), y=labels)
        (finding,) = [finding for finding in check(node, now) if finding.about == "data"]
        assert said in finding.detail
    assert bad(check(node, now)) == [("warning", "127.0.0.1:8443")]


START, KEYS = "start.sh", "certificates/server.key"
BREAKS: dict[str, tuple[Callable[[Path], object], str, str, str]] = {
    "telemetry": (
        edited("server.sh", "export FLWR_TELEMETRY_ENABLED=0\n", ""),
        *("error", "server.sh", "what it sends, whom it lets in"),
    ),
    "settings": (
        edited("covey.toml", 'name = "mnist-cnn"', 'name = "mist"'),
        *("error", "covey.toml", "model.name"),
    ),
    "seeded": (
        edited("covey.toml", 'source = "os"', 'source = "seeded"'),
        *("warning", "covey.toml", "every node, can recompute"),
    ),
    "entered": (
        named("method", "ifca-mir", "ifca"),
        *("warning", "method", "can all choose a small cluster"),
    ),
    "mean": (
        named("aggregation", "geometric-median", "mean"),
        *("warning", "aggregation", "can turn the model round"),
    ),
    "mode of a key": (opened(KEYS), "error", "permissions", "mode 0640"),
    "other key": (copied("certificates/ca.key", KEYS), *("error", "server.key", "found another")),
    "other authority": (
        copied("certificates/server.pem", "certificates/ca.crt"),
        *("error", "server.pem", "sign it for"),
    ),
    "other host": (
        edited("deploy.toml", 'host = "127.0.0.1"', 'host = "127.0.0.9"'),
        *("error", "server.pem", "sign it for 127.0.0.9"),
    ),
}
NODE_BREAKS: dict[str, tuple[Callable[[Path], object], str, str, str]] = {
    "switch": (
        edited(START, "export OMP_NUM_THREADS=1\n", ""),
        *("error", START, "found it changed"),
    ),
    "threshold": (
        edited("node.toml", "risk_threshold = 0.6", "risk_threshold = 6"),
        *("error", "node.toml", "less than or equal to 1, found 6"),
    ),
    "unknown": (
        edited("node.toml", "leave = false", "leaves = false"),
        *("error", "node.toml", "found 'leaves'. Remove it"),
    ),
    "no toml": (written("node.toml", b"="), "error", "node.toml", "must be TOML"),
    "authority": (written("ca.crt", b""), "error", "ca.crt", "expected a certificate"),
    "no file": (
        edited("node.toml", '# data = "examples.npz"', 'data = "none.npz"'),
        *("error", "data", "none.npz"),
    ),
    "simulated": (
        edited("node.toml", 'name = "bob"', 'name = "client-00039"'),
        *("warning", "data", "client-00039"),
    ),
    "no simulated client": (lambda _: None, "error", "data", "to client-00039"),
}


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize(("place", "breaks"), [(".", BREAKS), ("nodes/bob", NODE_BREAKS)])
def test_what_is_broken_is_found(place, breaks, federate, now, tmp_path):
    folder = federate()
    whole = shutil.copytree(folder, tmp_path / "whole")
    for name, (break_it, level, about, said) in breaks.items():
        shutil.rmtree(folder)
        shutil.copytree(whole, folder)
        break_it(folder / place)
        findings = [finding for finding in check(folder / place, now) if finding.level != "ok"]
        assert (level, about) in bad(findings), name
        assert said in " ".join(finding.detail for finding in findings if finding.about == about), (
            name
        )


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize(
    ("later", "level", "said"),
    [
        (timedelta(days=-1), "error", "found 2026-11-21 to 2028-11-20"),
        (timedelta(days=701), "warning", "a month more"),
        (timedelta(days=731), "error", "expected it to hold today"),
    ],
)
def test_a_certificate_ends(later, level, said, federate, now):
    folder = federate()
    dates = next(finding for finding in check(folder, now + later) if finding.about == "server.pem")
    assert dates.level == level
    assert said in dates.detail


MASKS = "[privacy]\nsecure_sums = true\nmin_cohort = 3\n[risk]\nname = 'none'\n[method]\n"


SUMMED = MASKS + "name = 'fedavg'\n[aggregation]\nname = 'mean'\n"
SEEDED = "[secrets]\nsource = 'seeded'\n"
NOISE = "client_clip = 1.0\nclient_noise = 1.0\nnoise_model = 'distributed'\n"


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize(
    ("settings", "whom", "for_what"),
    [
        (SUMMED, "the server", "to keep to the protocol for updates"),
        (MASKS + "name = 'ridge'\nnum_clusters = 1\n", "the server", "nothing for sums"),
        (SUMMED.replace("min_cohort", NOISE + "min_cohort"), "the server", "nothing: it sees sums"),
        (SUMMED.replace("min_cohort", NOISE + "min_cohort"), "other clients", "at most 0 of the 3"),
        ("[method]\nname = 'ifca'\n[risk]\nname = 'none'\n", "the server", "to forget its updates"),
        (
            "[method]\nname = 'ifca'\n[risk]\nname = 'none'\n",
            "the server",
            "not to ask for choices",
        ),
        (SUMMED, "who has the models", "measured, and not bounded"),
    ],
)
def test_it_says_who_has_to_trust_whom_for_what(federate, settings, whom, for_what):
    folder = federate(settings, more=("carol",))
    for place in (folder, folder / "nodes/alice"):
        rows = [row for row in trust_in(place) if row.truster == "a client"]
        (row,) = [row for row in rows if row.whom == whom]
        assert for_what in row.for_what


@pytest.mark.usefixtures("programs")
def test_noise_that_follows_from_a_seed_leaves_the_trust_of_no_noise(federate):
    noisy = SUMMED.replace("min_cohort", NOISE + "min_cohort")
    rows = {row.whom: row.for_what for row in trust_in(federate(noisy + SEEDED, more=("carol",)))}
    assert rows["the server"].startswith("to keep to the protocol")
    assert "not bounded" in rows["who has the models"]


@pytest.mark.usefixtures("programs")
def test_a_folder_that_is_none_or_was_moved_is_refused(federate, tmp_path, now):
    with pytest.raises(RunError, match=r"as its deploy\.toml says"):
        check(tmp_path, now)
    folder = federate()
    other = folder.rename(tmp_path / "other")
    with pytest.raises(RunError, match=f"was moved from {folder}"):
        check(other, now)
    (other / "deploy.toml").write_text("[plan]\nnodes = ['a']\nport = 0\n[scripts]\n")
    with pytest.raises(RunError, match=r"as its deploy\.toml says"):
        check(other, now)


@contextmanager
def listening(serve: Callable[[socket.socket], object]) -> Iterator[str]:
    """Something that answers one caller on a port of this machine; its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            caller, _ = server.accept()
            with caller:
                serve(caller)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def at(folder: Path, address: str, now: datetime) -> Finding:
    """What is found where the server of a folder should be."""
    edited("deploy.toml", "port = 8443", f"port = {address.rpartition(':')[2]}")(folder)
    *_, last = check(folder, now)
    return last


@pytest.mark.usefixtures("programs")
def test_a_port_that_answers(federate, now):
    folder = federate()
    certificates = folder / "certificates"
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")

    def greet(caller: socket.socket) -> None:
        context.wrap_socket(caller, server_side=True).close()

    with listening(greet) as address:
        finding = at(folder, address, now)
    assert finding == Finding("ok", address, "the server answers")


@pytest.mark.usefixtures("programs")
def test_a_port_with_another_program(federate, now):
    with listening(lambda caller: caller.sendall(b"220 mail.example.org\r\n")) as address:
        finding = at(federate(), address, now)
    assert finding.level == "error"
    assert "another program has the port" in finding.detail


@pytest.mark.usefixtures("programs")
def test_the_versions_of_flower_are_those_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted, _ = project["optional-dependencies"]["flower"]
    bounds = re.findall(r"(\d+)\.(\d+)", wanted)
    assert tuple(tuple(map(int, bound)) for bound in bounds) == FLOWER


@pytest.mark.usefixtures("programs")
def test_a_missing_program(federate, now, programs, monkeypatch):
    (programs / "flower-superexec").unlink()
    monkeypatch.setenv("PATH", str(programs))
    (finding,) = [finding for finding in check(federate(), now) if finding.about == "PATH"]
    assert finding.level == "error"
    assert "found no flower-superexec:" in finding.detail


PLAIN = "[model]\nname = 'linear'\n[risk]\nname = 'none'\n"
FEDAVG = PLAIN + "[method]\nname = 'fedavg'\n"
MASKED = FEDAVG + "[aggregation]\nname = 'mean'\n[privacy]\nsecure_sums = true\n"
IFCA = PLAIN + "[method]\nname = 'ifca'\n"
SHARES = "noise_model = 'distributed'\nclient_clip = 1.0\nclient_noise = 1.0\ncolluders = 1\n"
NEEDS = {
    "sums under masks": (MASKED + "min_cohort = 5\n", "privacy.min_cohort = 5", 5),
    "shares of noise": (MASKED + SHARES + "min_cohort = 6\n", "privacy.min_cohort = 6", 6),
    "anonymity sets": (
        FEDAVG + "[aggregation]\nname = 'anonymity-sets'\nmin_anonymity = 4\n"
        "deniability_threshold = 2\n",
        *("aggregation.min_anonymity = 4", 4),
    ),
    "newcomers": (IFCA + "max_newcomers = 0.2\n", "method.max_newcomers = 0.2", 6),
    "outliers": (FEDAVG + "[aggregation]\nname = 'krum'\n", "aggregation.name = 'krum'", 5),
    "trimmed": (
        FEDAVG + "[aggregation]\nname = 'trimmed-mean'\n",
        *("aggregation.name = 'trimmed-mean'", 3),
    ),
}


def federated(tmp_path: Path, text: str, count: int) -> Path:
    config = tmp_path / "config.toml"
    config.write_text(text)
    plan = DeploymentPlan(tuple(f"node-{i}" for i in range(count)))
    return write_federation(config, tmp_path / f"fed-{count}", plan, NOW)


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize(("text", "setting", "needed"), NEEDS.values(), ids=NEEDS)
def test_less_than_the_settings_need_is_refused_by_init_and_by_both_checks(
    tmp_path, text, setting, needed
):
    said = f"found {needed - 1} ({setting} needs {needed})"
    with pytest.raises(ConfigError, match="as many nodes as the settings need") as refused:
        federated(tmp_path, text, needed - 1)
    assert said in str(refused.value)
    assert not (tmp_path / f"fed-{needed - 1}").exists()
    enough, fewer = (
        federated(tmp_path, config, needed - i) for i, config in enumerate((text, FEDAVG))
    )
    for place in (Path(), Path("nodes") / "node-1"):
        of_settings = [
            finding for finding in check(enough / place, NOW) if finding.about == "covey.toml"
        ]
        assert [finding.level for finding in of_settings] == ["ok"]
        (fewer / place / "covey.toml").write_bytes((enough / place / "covey.toml").read_bytes())
        (finding,) = [
            finding for finding in check(fewer / place, NOW) if finding.about == "covey.toml"
        ]
        assert (finding.level, said in finding.detail) == ("error", True)


@pytest.mark.usefixtures("programs")
def test_a_nodes_own_minimum_counts_as_well(tmp_path):
    node = federated(tmp_path, MASKED + "min_cohort = 3\n", 3) / "nodes" / "node-0"
    own = tomllib.loads((node / "node.toml").read_text())
    (node / "node.toml").write_text(tomli_w.dumps({**own, "min_cohort": 4}))
    (finding,) = [finding for finding in check(node, NOW) if finding.about == "covey.toml"]
    assert "privacy.min_cohort = 4 needs 4" in finding.detail


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("count", [2, 3, 4, 9])
def test_the_usual_bound_on_newcomers_is_one_for_few_nodes(tmp_path, count):
    folder = federated(tmp_path, IFCA, count)
    share = tomllib.loads((folder / "covey.toml").read_text())["method"]["max_newcomers"]
    assert share == max(0.25, 1 / (count - 1))


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("name", ["sums under masks", "anonymity sets", "outliers"])
def test_a_simulation_is_held_to_the_same(name):
    text, setting, needed = NEEDS[name]
    config = Config.of(tomllib.loads(text))
    check_enough(config, needed)
    with pytest.raises(ConfigError, match=f"as many clients as .*{setting}"):
        check_enough(config, needed - 1)
