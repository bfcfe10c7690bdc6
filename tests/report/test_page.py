"""The report's page and its sentences."""

import re
from dataclasses import fields, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from covey import History
from covey.base.built_ins import LOSS
from covey.base.events import (
    ClientExposed,
    ClusterAudited,
    ClusterWaited,
    Event,
    ModelDiverged,
    RunFinished,
)
from covey.base.figure import Figure, RiskEstimate
from covey.base.history import NOTABLE, with_entries
from covey.report.comparison import comparison, means
from covey.report.page import templates, write_report
from covey.report.queries import Reported
from covey.report.summary import Exposure, Violations, happenings, summary
from report.conftest import HANDLES, ROUNDS, Plot, audited, history_from, reported

CONFIG = """seed = 3
[method]
name = "ifca-mir"
selection = "threshold"
[population]
exclude = ["client-00007", "hospital-berlin"]
"""


@pytest.fixture(scope="module")
def pages(histories, tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("pages")
    return {
        kind: write_report(
            [Reported(kind, histories[kind], CONFIG)], folder / kind / "report.html"
        ).read_text()
        for kind in ("two clusters", "refused", "unfinished")
    }


def prose(html: str) -> str:
    """Return the page's text without markup, styles and pictures."""
    return re.sub(r"\s+", " ", re.sub(r"<style>.*?</style>|<[^>]*>", " ", html, flags=re.S))


class Balance(HTMLParser):
    """Checks that tags close in the order in which they opened."""

    def __init__(self):
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object):
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str):
        assert self.open.pop() == tag


def test_a_page_is_whole_needs_nothing_but_itself_and_names_nobody(pages: dict[str, str]):
    for html in pages.values():
        assert "://" not in html  # base64 has no colon
        assert "<script" not in html
        assert "<link" not in html
        assert all(s.startswith("data:image/svg+xml") for s in re.findall(r'src="(.*?)"', html))
        parser = Balance()
        parser.feed(html)
        assert parser.open == []
        assert "client-00007" not in html
        assert "hospital-berlin" not in html
        assert "2 names are not shown" in html
        rows = re.findall(r"<tbody>(.*?)</tbody>", html, re.S)
        cells = re.findall(r"<td[^>]*>(.*?)</td>", "".join(rows), re.S)
        assert all(prose(cell).strip() for cell in cells)
        assert not re.search(r"\b(None|nan|Undefined)\b", prose(html))


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("refused", "refused: they do not match"),
        ("refused", "unknown: no model in use has a true risk: refused: they do not match"),
        ("unfinished", "unknown: it is measured when a run ends"),
        ("unfinished", "This run is not finished"),
    ],
)
def test_a_page_says_why_something_is_unknown(pages: dict[str, str], kind: str, why: str):
    assert why in prose(pages[kind])


def test_a_hostile_name_is_text(histories: dict[str, History], tmp_path: Path):
    run = Reported("<script>alert('x')</script>", histories["own data"], CONFIG)
    html = write_report([run], tmp_path / "report.html").read_text()
    assert "<script" not in html
    assert "&lt;script&gt;" in html


def sentences(history: History) -> list[str]:
    """Return what a page says of how the rounds went."""
    said: Any = templates().get_template("happenings.html").module
    return [
        f"{happening.when}: {said.sentence(happening)}".strip() for happening in happenings(history)
    ]


ANY: dict[str, Any] = {
    "clients": ("h0", "h1"),
    "handles": ("h0", "h1"),
    "clusters": (0,),
    "gaps": {"inputs": 0.1},
}


@pytest.mark.parametrize("kind", NOTABLE)
def test_every_kind_of_event_that_a_reader_is_shown_has_a_sentence(kind: type[Event]):
    values: dict[str, Any] = {field.name: ANY.get(field.name, 1) for field in fields(kind)}
    if kind.__name__ == "ClusterWaited":
        values["clients"] = 1
    (sentence,) = sentences(History(notable=((0, kind(**values)),)))
    assert sentence.startswith("Round 1: ")
    assert sentence.endswith(".")
    assert len(sentence) > 20


def test_why_a_cluster_waited():
    few, far = (sentences(History(notable=((0, ClusterWaited(1, n, 4)),))) for n in (3, 6))
    assert few == [
        "Round 1: cluster 1 waited. Its 3 clients are fewer than the 4 that its aggregation needs."
    ]
    assert far == [
        "Round 1: cluster 1 waited. No 4 of its 6 clients were near enough to each other."
    ]


WHY = "is no better than guessing"
RISK = 0.9  # above what anybody accepts


@pytest.fixture
def one_of_two() -> History:
    """Cluster 0, where the minority is, has no model at the end; the other's risk is .9."""
    none = RiskEstimate.of_diverged(WHY, LOSS)
    plot = Plot(finished=False)
    events = [
        ModelDiverged(0, ROUNDS, WHY),
        ClusterAudited(0, none, none.figure, none.figure),
        audited(1, RISK),
        *(
            ClientExposed(h, j, 0.5, Figure(RISK if j else None))
            for h, j in zip(HANDLES, plot.clusters, strict=True)
        ),
        RunFinished("abc", 0.5, {"minority": 0.5, "majority": 0.5}, 1.0),
    ]
    return with_entries(history_from(plot), [(ROUNDS, events)])


def test_what_rests_on_a_diverged_model_is_null_and_the_rest_is_not(one_of_two):
    summarised = summary(one_of_two)
    assert summarised.diverged == [ModelDiverged(0, ROUNDS, WHY)]
    none, sound = summarised.clusters
    assert none.risk is none.true_risk is none.auc is none.blind_auc is None
    unknown = Figure.unknown(f"the model {WHY}")
    assert none.measured.figure == none.truth.figure == unknown
    assert none.exposed_risk == none.traced_risk == unknown
    assert none.reason == f"the model {WHY}"
    assert none.measured.diverged == none.truth.diverged == WHY
    assert (sound.true_risk, sound.risk) == (RISK, 0.6)
    rests = f"it rests on the model of cluster 0, which {WHY}"
    assert summarised.violations == Violations(
        unknown=6, unknown_by_group={"minority": 2, "majority": 4}, reason=rests
    )
    assert summarised.fairness_reason == rests
    assert summarised.exposure == Exposure(Figure.unknown(rests), Figure.unknown(rests))
    assert summarised.fairness is None
    assert summarised.accuracy.overall == 0.5


def test_who_left_a_model_that_diverged_has_no_exposure_but_a_risk(one_of_two):
    # h0 trained cluster 0 and sits in cluster 1 now, like everybody else.
    history = replace(
        one_of_two,
        assignment=dict.fromkeys(HANDLES, 1),
        moves={"h0": (2,)},
        exposures=tuple(
            ClientExposed(h, 1, 0.5, Figure(None if h == "h0" else RISK)) for h in HANDLES
        ),
    )
    summarised = summary(history)
    assert summarised.violations.count == 6
    assert summarised.violations.count_exposed is None
    assert summarised.exposure.mean.value is None
    assert summarised.moves.moved_and_exposed is None
    assert "cluster 0" in summarised.exposure.mean.reason


def test_a_diverged_run_never_counts_as_zero_among_others(one_of_two):
    plot = Plot(risks=(RISK, RISK))
    runs = [replace(reported("a", plot), history=one_of_two), reported("b", plot, seed=1)]
    rows = comparison(runs)
    assert [row["violations"] for row in rows] == [None, 6]
    assert [row["diverged"] for row in rows] == [[0], []]
    assert WHY in rows[0]["reason"]
    (row,) = means(runs)
    assert row["diverged"] == 1
    assert row["violations"]["mean"] is None
    assert row["violations"]["reason"] == "unknown in 1 of 2 runs"
