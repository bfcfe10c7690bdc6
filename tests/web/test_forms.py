"""Forms take requests in, answer and close them; nobody else's form does anything."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import covey
from covey.desk.register import read_register
from covey.web.app import application
from web.conftest import ADDRESS, LEAVING, PORT, TestClient

Make = Callable[[Path], object]
NAME = "client-00001"
OWN = {"origin": ADDRESS}


@pytest.fixture(scope="session")
def played(once: Callable[[str, Make], Path]) -> Path:
    """One run, only to be read."""
    return once("web-forms", lambda folder: covey.run(config=LEAVING, out=folder / "a"))


@pytest.fixture
def root(played: Path, tmp_path: Path) -> Path:
    return shutil.copytree(played, tmp_path / "runs")


def browser(root: Path, *, write: bool = True) -> TestClient:
    app = application([root], PORT, lambda _: None, write=write)
    client = TestClient(app, base_url=ADDRESS)
    client.get(app.link)
    return client


def token(client: TestClient) -> str:
    found = re.search(r'name="form_token" value="(\w+)"', client.get("/requests").text)
    assert found is not None
    return found[1]


def send(client: TestClient, path: str, **fields: object) -> str:
    """Send a page's own form, and return the page that it leads to."""
    data = {"form_token": token(client), **fields}
    answer = client.post(path, data=data, headers=OWN)
    assert answer.status_code == 200, answer.text
    return answer.text


def add(client: TestClient, **more: object) -> str:
    fields = {"names": NAME, "received": "2026-01-31", "basis": "erasure", **more}
    return send(client, "/requests", **fields)


def settled(client: TestClient) -> str:
    """Ask for the request's page until its runs have answered, and return it."""
    page = client.get("/requests/1").text
    while "Runs are answering." in page:
        page = client.get("/requests/1").text
    return page


def test_a_request_goes_from_the_first_form_to_its_closing(root: Path):
    client = browser(root)
    assert NAME in add(client, reference="letter 17")
    page = send(client, "/requests/1/correct", received="2026-02-01", language="de")
    assert "received 2026-01-31" in page, "what it said before"
    shown = send(client, "/requests/1/answer", answer="retrain")
    assert "cannot be taken back" in shown
    confirmed = re.search(r'name="confirmed" value="(\w+)"', shown)
    assert confirmed is not None
    assert NAME in covey.load(root / "a").names, "nothing was done yet"
    send(client, "/requests/1/answer", answer="retrain", confirmed=confirmed[1])
    assert "1 of 1 runs have answered." in settled(client)
    assert NAME not in covey.load(root / "a").names
    statement = root / "requests" / "packs" / "request-1-1" / "statement.html"
    assert "Ihre Daten sind nicht mehr im" in statement.read_text()
    assert "erase the names" in send(client, "/requests/1/close")
    send(client, "/requests/1/close", confirmed="close")
    with read_register(root / "requests") as held:
        assert held.request("1").is_closed
    assert NAME not in client.get("/requests/1").text


def test_two_names_on_one_form_are_one_request(root: Path):
    client = browser(root)
    page = add(client, names=f"{NAME}\r\nsite 7", basis="access", reference="<b>x")
    assert f"{NAME}, site 7" in page
    assert "<b>x" not in page
    shown = send(client, "/requests/1/answer")
    assert "No run has site 7" in shown
    confirmed = re.search(r'name="confirmed" value="(\w+)"', shown)
    assert confirmed is not None
    send(client, "/requests/1/answer", confirmed=confirmed[1])
    assert "request-1-2.zip" in settled(client)


def test_what_was_not_shown_is_not_answered(root: Path):
    client = browser(root)
    add(client)
    page = send(client, "/requests/1/answer", answer="retrain", confirmed="0" * 64)
    assert "not what was shown before" in page
    assert NAME in covey.load(root / "a").names


FORGED = {
    "no token": ({}, OWN, 403),
    "another token": ({"form_token": "0" * 64}, OWN, 403),
    "another site": (None, {"origin": "http://evil.example"}, 403),
    "no origin": (None, {}, 403),
    "another port": (None, {"origin": f"http://127.0.0.1:{PORT + 1}"}, 403),
    "a page elsewhere": (None, {**OWN, "sec-fetch-site": "cross-site"}, 403),
    "another host": (None, {**OWN, "host": f"evil.example:{PORT}"}, 400),
}


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_form_is_refused(root: Path, case: str):
    own, headers, status = FORGED[case]
    client = browser(root)
    fields = {"names": NAME, "received": "2026-01-31", "basis": "erasure"}
    data = {**fields, **({"form_token": token(client)} if own is None else own)}
    answer = client.post("/requests", data=data, headers=headers)
    assert answer.status_code == status
    assert not (root / "requests").exists()


def test_the_token_of_another_session_is_refused(root: Path):
    app = application([root], PORT, lambda _: None, write=True)
    first, second = (TestClient(app, base_url=ADDRESS) for _ in range(2))
    first.get(app.link)
    second.get(app.link)
    data = {"form_token": token(first), "names": NAME, "received": "2026-01-31"}
    assert second.post("/requests", data=data, headers=OWN).status_code == 403


def test_a_form_of_another_kind_or_too_long_is_refused(root: Path):
    client = browser(root)
    given = token(client)
    as_json = client.post("/requests", json={"form_token": given}, headers=OWN)
    assert as_json.status_code == 403
    long = {"form_token": given, "names": "x" * 70_000}
    assert client.post("/requests", data=long, headers=OWN).status_code == 403


def test_without_write_no_form_is_shown_or_taken(root: Path):
    client = browser(root, write=False)
    assert "<form" not in client.get("/requests").text
    assert client.post("/requests", data={}, headers=OWN).status_code == 405


@pytest.mark.parametrize(
    "fields", [{"received": "soon"}, {"basis": "whim"}, {"names": ""}, {"language": "xx"}]
)
def test_a_mistake_is_told_and_changes_nothing(root: Path, fields: dict[str, str]):
    client = browser(root)
    wrong = {"names": NAME, "received": "2026-01-31", "basis": "erasure", **fields}
    data = {"form_token": token(client), **wrong}
    answer = client.post("/requests", data=data, headers=OWN)
    assert answer.status_code == 400
    assert "Nothing was changed" in answer.text
