"""Whatever is broken in a federation's folder is found, named, and told how to mend."""

import re
import shutil
import socket
import ssl
import threading
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import tomli_w

from covey import RunError
from covey.flower.operation import FLOWER, Finding, check, server_findings
from covey.settings.load import replace_setting

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.usefixtures("programs")


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


def swapped(folder: Path) -> None:
    """Give the server the authority's key instead of its own."""
    certificates = folder / "certificates"
    shutil.copy(certificates / "ca.key", certificates / "server.key")


def self_signed(folder: Path) -> None:
    certificates = folder / "certificates"
    shutil.copy(certificates / "server.pem", certificates / "ca.crt")


def moved(folder: Path) -> None:
    shutil.copytree(folder, folder.parent / "elsewhere")
    shutil.rmtree(folder)
    (folder.parent / "elsewhere").rename(folder.parent / "other")


def bad(found: tuple[Finding, ...]) -> list[tuple[str, str]]:
    return [(each.level, each.about) for each in found if each.level != "ok"]


def test_a_new_folder_is_fine_on_the_server(federate, now):
    folder = federate()
    assert bad(check(folder, now)) == []
    last = check(folder, now)[-1]
    assert (last.about, last.detail) == ("127.0.0.1:8443", "nothing is there yet: start server.sh")


def test_a_new_folder_is_fine_on_a_node_but_for_its_data(federate, now):
    node = federate() / "nodes" / "alice"
    assert bad(check(node, now)) == [("error", "data"), ("warning", "127.0.0.1:8443")]
    np.savez(node / "mine.npz", x=np.zeros((3, 8, 8), np.uint8), y=np.arange(3))
    edited("node.toml", '# data = "examples.npz"', 'data = "mine.npz"')(node)
    assert bad(check(node, now)) == [("warning", "127.0.0.1:8443")]


SERVER_BREAKS = {
    "telemetry": (
        edited("server.sh", "export FLWR_TELEMETRY_ENABLED=0\n", ""),
        "error",
        "server.sh",
        "it is not known what it sends",
    ),
    "update-check": (
        edited("flwr.sh", "FLWR_DISABLE_UPDATE_CHECK=1", "FLWR_DISABLE_UPDATE_CHECK=0"),
        "error",
        "flwr.sh",
        "found it changed",
    ),
    "database": (
        edited("server.sh", "exec flower-superlink", "exec flower-superlink --database x"),
        "error",
        "server.sh",
        "what stays on the disk",
    ),
    "exposed": (
        edited("server.sh", "--host 127.0.0.1", "--host 0.0.0.0"),
        "error",
        "server.sh",
        "who can reach",
    ),
    "no-script": (
        lambda folder: (folder / "server.sh").unlink(),
        "error",
        "server.sh",
        "Write the folder again",
    ),
    "registering": (
        edited("register.sh", "supernode register", "supernode unregister"),
        "error",
        "register.sh",
        "found it changed",
    ),
    "settings": (
        edited("covey.toml", 'name = "mnist-cnn"', 'name = "mist"'),
        "error",
        "covey.toml",
        "model.name",
    ),
    "seeded": (
        edited("covey.toml", 'source = "os"', 'source = "seeded"'),
        "warning",
        "covey.toml",
        "every node, can recompute",
    ),
    "entered": (
        named("method", "ifca-mir", "ifca"),
        "warning",
        "method",
        "can all choose a small cluster",
    ),
    "mean": (
        named("aggregation", "geometric-median", "mean"),
        "warning",
        "aggregation",
        "can turn the model round",
    ),
    "key-mode": (opened("certificates/server.key"), "error", "permissions", "mode 0640"),
    "authority-mode": (opened("certificates/ca.key"), "error", "permissions", "chmod go="),
    "node-key-mode": (opened("nodes/bob/key"), "error", "permissions", "bob/key with mode 0640"),
    "other-key": (swapped, "error", "server.key", "found another"),
    "no-key": (written("certificates/server.key", b"x"), "error", "server.key", "found"),
    "other-authority": (self_signed, "error", "server.pem", "signed it for"),
    "no-certificate": (
        written("certificates/server.pem", b"x"),
        "error",
        "server.pem",
        "expected a certificate",
    ),
    "other-host": (
        edited("deploy.toml", 'host = "127.0.0.1"', 'host = "127.0.0.9"'),
        "error",
        "server.pem",
        "signed it for 127.0.0.9",
    ),
}


NODE_BREAKS = {
    "switch": (
        edited("start.sh", "export OMP_NUM_THREADS=1\n", ""),
        "error",
        "start.sh",
        "found it changed",
    ),
    "no-seed": (edited("node.toml", "seed = ", "# "), "error", "node.toml", "seed"),
    "no-name": (edited("node.toml", "name = ", "# "), "error", "node.toml", "name"),
    "seed": (edited("node.toml", "seed = ", "seed = -"), "error", "node.toml", "seed"),
    "threshold": (
        edited("node.toml", "risk_threshold = 0.6", "risk_threshold = 6"),
        "error",
        "node.toml",
        "less than or equal to 1, found 6",
    ),
    "flag": (
        edited("node.toml", "leave = false", "leave = 'no'"),
        "error",
        "node.toml",
        "leave: Input should be a valid boolean, found 'no'",
    ),
    "holdout": (
        edited("node.toml", "# holdout = 0.2", "holdout = 1"),
        "error",
        "node.toml",
        "less than 1, found 1",
    ),
    "unknown": (
        edited("node.toml", "leave = false", "leaves = false"),
        "error",
        "node.toml",
        "found 'leaves'. Remove it",
    ),
    "no-toml": (written("node.toml", b"="), "error", "node.toml", "in TOML"),
    "mode": (opened("node.toml"), "error", "permissions", "mode 0640"),
    "authority": (written("ca.crt", b""), "error", "ca.crt", "expected a certificate"),
    "no-file": (
        edited("node.toml", '# data = "examples.npz"', 'data = "none.npz"'),
        "error",
        "data",
        "none.npz",
    ),
    "no-fork-server": (
        edited("start.sh", "python3 -P -m covey.flower.fork_server", "# python3"),
        "error",
        "start.sh",
        "found it changed",
    ),
    "no-name-of-a-client": (lambda _: None, "error", "data", "to client-00039"),
}


@pytest.mark.parametrize(
    ("place", "name"),
    [*((".", each) for each in SERVER_BREAKS), *(("nodes/bob", each) for each in NODE_BREAKS)],
)
def test_what_is_broken_is_found(place, name, federate, now):
    break_it, level, about, said = (SERVER_BREAKS if place == "." else NODE_BREAKS)[name]
    folder = federate() / place
    break_it(folder)
    found = [each for each in check(folder, now) if each.level != "ok"]
    assert (level, about) in [(each.level, each.about) for each in found]
    assert said in " ".join(each.detail for each in found if each.about == about)


@pytest.mark.parametrize(
    ("arrays", "level", "said"),
    [
        ({"x": np.zeros((2, 3)), "y": np.arange(2)}, "ok", "2 examples"),
        ({"x": np.zeros((2, 3)), "y": np.arange(3)}, "error", "found (2, 3) and (3,)"),
        ({"x": np.zeros((0, 3)), "y": np.arange(0)}, "error", "must bring an example"),
        ({"inputs": np.zeros((2, 3))}, "error", "arrays x and y"),
        ({"x": np.array([{}]), "y": np.arange(1)}, "error", "plain arrays"),
    ],
)
def test_a_nodes_examples(arrays, level, said, federate, now):
    node = federate() / "nodes" / "bob"
    np.savez(node / "mine.npz", **arrays)
    edited("node.toml", '# data = "examples.npz"', 'data = "mine.npz"')(node)
    (found,) = [each for each in check(node, now) if each.about == "data"]
    assert found.level == level
    assert said in found.detail


def test_a_simulated_client_is_a_warning(federate, now):
    node = federate() / "nodes" / "bob"
    edited("node.toml", 'name = "bob"', 'name = "client-00039"')(node)
    (found,) = [each for each in check(node, now) if each.about == "data"]
    assert found.level == "warning"


@pytest.mark.parametrize(
    ("later", "level", "said"),
    [
        (timedelta(days=-1), "error", "found 2026-11-21 to 2028-11-20"),
        (timedelta(days=699), "ok", "holds until 2028-11-20"),
        (timedelta(days=701), "warning", "a month more"),
        (timedelta(days=731), "error", "expected it to hold today"),
    ],
)
def test_a_certificate_ends(later, level, said, federate, now):
    folder = federate()
    dates = next(server_findings(folder / "certificates", "127.0.0.1", now + later))
    assert (dates.level, dates.about) == (level, "server.pem")
    assert said in dates.detail


def test_the_authority_ends_after_ten_years(federate, now):
    node = federate() / "nodes" / "bob"
    late = check(node, now + timedelta(days=3654))
    assert ("error", "ca.crt") in bad(late)
    assert ("error", "ca.crt") not in bad(check(node, now + timedelta(days=3652)))


COUNTED = '[risk]\nname = "federated"\n'
UNMEASURED = COUNTED.replace("federated", "none")
MASKS = "[privacy]\nsecure_sums = true\nmin_cohort = 3\n[method]\n"
MEANS = MASKS + 'name = "fedavg"\n[aggregation]\nname = "mean"\n'
HEADS = MASKS + 'name = "solved"\nnum_clusters = 1\n'


CURIOUS, MALICIOUS = "that keeps to the protocol", "from a malicious server too"


@pytest.mark.parametrize(
    ("settings", "level", "told"),
    [
        (MEANS + UNMEASURED, "warning", f"clients' updates from a server {CURIOUS}"),
        (MEANS + COUNTED, "warning", f"counts of losses and updates from a server {CURIOUS}"),
        (HEADS + COUNTED, "warning", f"counts of losses from a server {CURIOUS}"),
        (HEADS + UNMEASURED, "ok", f"sums over records {MALICIOUS}"),
    ],
)
def test_it_says_against_whom_masks_protect(federate, now, settings, level, told):
    folder = federate(settings)
    for place in (folder, folder / "nodes/alice"):
        (found,) = [each for each in check(place, now) if each.about == "masks"]
        assert found.level == level
        assert told in found.detail


def test_another_folder_is_refused(tmp_path, now):
    with pytest.raises(RunError, match="says which"):
        check(tmp_path, now)


def test_a_folder_that_was_moved_is_refused(federate, now):
    folder = federate()
    moved(folder)
    with pytest.raises(RunError, match=f"was moved from {folder}"):
        check(folder.parent / "other", now)


def test_of_a_changed_script_nothing_is_said_but_that(federate, now):
    folder = federate()
    said = [each.detail for each in check(folder, now) if each.about == "server.sh"]
    assert len(said) == 3
    (folder / "server.sh").write_text("exec true\n")
    (about,) = [each for each in check(folder, now) if each.about == "server.sh"]
    assert about.level == "error"


def test_a_server_that_all_can_reach_is_a_warning(federate, now):
    folder = federate(host="192.0.2.7")
    (found,) = [each for each in check(folder, now) if "only nodes can reach" in each.detail]
    assert (found.level, found.about) == ("warning", "server.sh")
    assert "--host 0.0.0.0" in found.detail


@pytest.mark.parametrize(
    "text", ["", "=", "[plan]\nnodes = ['a']\nport = 0\n[scripts]\n", "[plan]\nnodes = 3\n"]
)
def test_a_declaration_that_is_none_is_refused(federate, now, text):
    folder = federate()
    (folder / "deploy.toml").write_text(text)
    with pytest.raises(RunError, match="says which"):
        check(folder, now)


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


def test_a_port_that_answers(federate, now):
    folder = federate()
    certificates = folder / "certificates"
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")

    def greet(caller: socket.socket) -> None:
        context.wrap_socket(caller, server_side=True).close()

    with listening(greet) as address:
        found = at(folder, address, now)
    assert found == Finding("ok", address, "the server answers")


def test_a_port_with_another_program(federate, now):
    with listening(lambda caller: caller.sendall(b"220 mail.example.org\r\n")) as address:
        found = at(federate(), address, now)
    assert found.level == "error"
    assert "Another program has the port" in found.detail


def test_the_versions_of_flower_are_those_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted, _ = project["optional-dependencies"]["flower"]
    bounds = re.findall(r"(\d+)\.(\d+)", wanted)
    assert tuple(tuple(map(int, each)) for each in bounds) == FLOWER


def test_a_missing_program(federate, now, programs, monkeypatch):
    (programs / "flower-superexec").unlink()
    monkeypatch.setenv("PATH", str(programs))
    (found,) = [each for each in check(federate(), now) if each.about == "PATH"]
    assert found.level == "error"
    assert "found no flower-superexec." in found.detail
