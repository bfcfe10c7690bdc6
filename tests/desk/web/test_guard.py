"""Nobody but a browser that was let in, on this machine, by GET."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey_desk.web.app import application
from covey_desk.web.guard import HEADERS
from desk.web.conftest import ADDRESS, PORT, TestClient, Visitor

PATHS = ("/", "/runs/any", "/static/page.css", "/nothing", "/runs/any/events")


@pytest.fixture
def stranger(tmp_path: Path) -> TestClient:
    return TestClient(application([tmp_path], PORT, lambda _: None), base_url=ADDRESS)


@pytest.mark.parametrize("path", PATHS)
def test_without_the_cookie_nothing_is_answered(stranger: TestClient, path: str):
    answer = stranger.get(path)
    assert answer.status_code == 401
    assert "covey serve printed" in answer.text


def test_a_link_lets_one_browser_in_and_the_next_one_is_told(tmp_path: Path):
    told: list[str] = []
    app = application([tmp_path], PORT, told.append)
    link = app.link
    first, second = (TestClient(app, base_url=ADDRESS) for _ in range(2))
    assert first.get(link).status_code == 200
    assert first.get("/").status_code == 200
    assert second.get(link).status_code == 401
    assert second.get("/").status_code == 401
    assert told == [app.link]
    assert app.link != link
    assert second.get(told[0]).status_code == 200


def test_the_address_bar_does_not_keep_the_token(tmp_path: Path):
    app = application([tmp_path], PORT, lambda _: None)
    answer = TestClient(app, base_url=ADDRESS).get(app.link, follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert f"covey-{PORT}=" in cookie


@pytest.fixture(scope="module")
def nobody() -> TestClient:
    return TestClient(application([], PORT, lambda _: None), base_url=ADDRESS)


@given(
    token=st.text(st.characters(codec="utf-8"), max_size=60),
    value=st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=60),
)
def test_no_other_token_or_cookie_opens_anything(nobody: TestClient, token: str, value: str):
    answer = nobody.get("/", params={"token": token})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    for cookie in (value, f"covey-{PORT}={value}"):
        assert nobody.get("/", headers={"cookie": cookie}).status_code == 401


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        f"evil.example:{PORT}",
        "127.0.0.1",
        f"127.0.0.1:{PORT + 1}",
        f"127.0.0.1:{PORT}.evil.example",
        f"127.0.0.1.evil.example:{PORT}",
        "",
    ],
)
def test_another_host_is_refused_even_with_the_cookie(visitor: Visitor, host: str):
    answer = visitor.client.get("/", headers={"host": host})
    assert answer.status_code == 400
    assert "<table" not in answer.text


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_nothing_but_reading_is_answered(visitor: Visitor, method: str, path: str):
    answer = visitor.client.request(method, path)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD"


def test_every_answer_has_the_headers_that_protect_it(visitor: Visitor, stranger: TestClient):
    answers = [visitor.client.get(path) for path in PATHS[:-1]]
    answers += [stranger.get("/"), visitor.client.post("/")]
    assert {each.status_code for each in answers} == {200, 401, 404, 405}
    for answer in answers:
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert "access-control-allow-origin" not in answer.headers
