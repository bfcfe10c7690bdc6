"""What a monitoring system reads: valid, true to the run's record, and of no client."""

import re
import shutil
import sqlite3
import urllib.error
import urllib.request
from contextlib import closing
from http.cookiejar import CookieJar
from pathlib import Path

import pytest

from covey.base.events import AnswerRefused, AnswersMissing, NewcomersWaited
from covey.ledger.store import Ledger
from covey.runs.folder import RunFolder
from covey.runs.ledger_record import records_of
from covey_desk.register import read_register, register_of
from desk.web.servers import serving
from desk.web.stories import INERT, Scenario, written

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (-?\d+(?:\.\d+)?)")
Samples = dict[tuple[str, frozenset[str]], float]


def parsed(text: str) -> Samples:
    """Read the text format strictly: help, type, then all samples of a metric, each once."""
    assert text.endswith("\n")
    samples: Samples = {}
    begun: list[str] = []
    lines = text.splitlines()
    while lines:
        helped = re.fullmatch(rf"# HELP ({NAME}) [^\\\n]+", lines.pop(0))
        assert helped
        name = helped[1]
        typed = re.fullmatch(rf"# TYPE {name} (counter|gauge)", lines.pop(0))
        assert typed
        assert name not in begun
        assert name.endswith("_total") is (typed[1] == "counter")
        begun.append(name)
        while lines and not lines[0].startswith("#"):
            sample = SAMPLE.fullmatch(lines.pop(0))
            assert sample
            assert sample[1] == name
            key = name, frozenset(re.findall(LABEL, sample[2] or ""))
            assert key not in samples
            samples[key] = float(sample[3])
        assert any(name == known for known, _ in samples)
    return samples


def scraped(root: Path) -> tuple[Samples, str, str]:
    """Return what a real server answers to somebody who opened its link."""
    with serving(root) as server:
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        address = server.link.partition("?")[0]
        with browser.open(server.link) as page:
            page.read()
        with browser.open(f"{address}metrics") as answer:
            text = answer.read().decode()
            return parsed(text), text, answer.headers["content-type"]


def of_run(samples: Samples, name: str) -> dict[frozenset[str], float]:
    """Return a metric's values by its labels beside the run's."""
    values: dict[frozenset[str], float] = {}
    for (metric, labels), value in samples.items():
        if metric == name:
            values[frozenset(label for label in labels if not label.startswith("run="))] = value
    return values


ALONE = frozenset[str]()


@pytest.fixture
def live(tmp_path: Path) -> Path:
    """A run whose last round had refusals, missing answers and clients that wait."""
    with written(tmp_path / "runs" / "live", Scenario(hostile=True)) as writer:
        writer.play(3)
        one, two, three = writer.handles[:3]
        faults = (
            AnswerRefused(None, f"it has no name: {INERT}"),
            AnswerRefused(one, "this step is over"),
            AnswerRefused(one, "its update of w must hold finite numbers only"),
            AnswerRefused(two, f"its update of {INERT} must be readable"),
            AnswerRefused(three, "its arrays must be readable"),
        )
        absent = AnswersMissing("train", (two, three)), AnswersMissing("choose", (three,))
        cohort, chosen, *rest = writer._round(3)
        events = [cohort, *faults, *absent, chosen, NewcomersWaited(1, 3, 5, 4), *rest]
        writer.ledger.append(3, records_of(events, 3))
    return tmp_path / "runs"


def test_figures_are_those_of_the_record_and_name_no_client(live: Path):
    samples, text, kind = scraped(live)
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    assert of_run(samples, "covey_rounds") == {ALONE: 4}
    assert of_run(samples, "covey_run_state") == {frozenset({'state="waiting"'}): 1}
    assert of_run(samples, "covey_round_participants") == {ALONE: Scenario().clients}
    assert of_run(samples, "covey_clients_waiting") == {ALONE: 4}
    assert of_run(samples, "covey_clients_missing") == {ALONE: 2}
    assert of_run(samples, "covey_open_requests") == {ALONE: 0}
    reasons = {"not_admitted": 1, "late": 1, "not_finite": 1, "other": 2}
    labelled = {frozenset({f'reason="{reason}"'}): n for reason, n in reasons.items()}
    assert of_run(samples, "covey_answers_refused_total") == labelled
    for private in (INERT, "client-", *handles(live / "live")):
        assert private not in text


def handles(path: Path) -> list[str]:
    with Ledger.read(RunFolder(path).ledger) as ledger:
        names = ledger.names()
    return [*names, *names.values()]


def test_requests_and_their_next_deadline_are_those_of_the_register(shown: Path):
    samples, text, _ = scraped(shown)
    with read_register(register_of(shown)) as register:
        (request,) = register.requests().values()
    assert samples["covey_register_open_requests", ALONE] == 1
    assert samples["covey_deadline_days", ALONE] == request.days_left
    assert request.entry.names[0] not in text


def test_a_figure_that_is_unknown_is_omitted(shown: Path, tmp_path: Path):
    shutil.copytree(shown / "begun", tmp_path / "begun")
    assert {name for name, _ in scraped(tmp_path)[0]} == {
        "covey_run_state",
        "covey_rounds",
        "covey_open_requests",
    }
    with written(tmp_path / "damaged", Scenario()) as writer:
        writer.play(2)
    ledger = tmp_path / "damaged" / "ledger.sqlite"
    assert of_run(scraped(tmp_path)[0], "covey_round_participants")
    with closing(sqlite3.connect(ledger)) as database, database:
        database.execute("UPDATE events SET body = '{}' WHERE position = 3")
    assert not of_run(scraped(tmp_path)[0], "covey_round_participants")


def test_without_the_cookie_there_are_no_figures(live: Path):
    with serving(live) as server:
        address = f"http://127.0.0.1:{server.link.split(':')[2].split('/')[0]}/metrics"
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(address)
    refused.value.close()
    assert refused.value.code == 401
