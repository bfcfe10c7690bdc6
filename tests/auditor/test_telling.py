"""What an audit of a model says, how it looks, and what it refuses in a sentence."""

import json
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright
from torch import nn

from auditor.tiny import Sides, train
from covey import ConfigError, DataError, ModelAudit, ModelError, audit_model

CHROMIUM = Path("/usr/bin/chromium")


def test_it_is_short_in_a_program_and_in_a_notebook(found: ModelAudit):
    assert len(repr(found)) < 200
    assert "lira" in repr(found)
    shown = found._repr_html_()
    assert len(shown) < 4_000
    assert "<table>" in shown


def test_json_holds_every_figure_with_its_interval(found: ModelAudit):
    told = json.loads(found.to_json())
    assert told == found.to_dict()
    for figures in told["attacks"].values():
        for rate in ("auc", "balanced_accuracy", "advantage"):
            one = figures["overall"][rate]
            assert one["low"] <= one["value"] <= one["high"]
            assert 0 < one["error"] < 0.1
        assert figures["overall"]["tpr_at_1_percent"]["value"] is None
        assert set(figures["by_class"]) == set("0123")
    assert any("at least 1,000" in reason for reason in told["unknown"])
    assert all(each["holds"] for each in told["controls"].values())


def test_the_page_needs_nothing_beside_it(found: ModelAudit, tmp_path: Path):
    page = found.write_html(tmp_path / "below" / "audit.html")
    text = page.read_text()
    assert "http" not in text.partition("<body>")[2]
    assert "Members can be distinguished" in text
    assert "What this does not say" in text


def test_a_page_without_figures_says_why(heart, sides: Sides, tmp_path: Path):
    x, y = sides.non_members
    page = audit_model(heart, sides.members, (x + 1, y)).write_html(tmp_path / "a.html")
    assert "never sees the model" in page.read_text()


@pytest.mark.skipif(not CHROMIUM.exists(), reason=f"there is no browser at {CHROMIUM}")
def test_the_page_is_readable_narrow_and_wide_light_and_dark(found: ModelAudit, tmp_path: Path):
    page = found.write_html(tmp_path / "audit.html")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        looks: list[tuple[Literal["light", "dark"], int]] = [("light", 400), ("dark", 1300)]
        for scheme, width in looks:
            context = browser.new_context(
                viewport={"width": width, "height": 900}, color_scheme=scheme
            )
            tab = context.new_page()
            tab.goto(page.as_uri())
            broken = Axe().run(tab).response["violations"]
            assert [each["id"] for each in broken] == []
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
            context.close()
        browser.close()


def test_labels_that_are_no_classes_are_refused(heart: nn.Module, sides: Sides):
    x, y = sides.members
    with pytest.raises(DataError, match="class numbers from 0"):
        audit_model(heart, (x, y.float()), sides.non_members)


def test_sides_of_other_shapes_are_refused(heart: nn.Module, sides: Sides):
    x, y = sides.non_members
    with pytest.raises(DataError, match="one shape and type"):
        audit_model(heart, sides.members, (x[:, :5], y))


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (lambda x: x[:, :1], "at least 4 classes"),
        (lambda x: x[:, 0], "a row of outputs per example"),
        (lambda x: x @ torch.zeros(3, 3), "raised RuntimeError"),
    ],
)
def test_a_model_without_scores_is_refused(model, sentence: str, sides: Sides):
    with pytest.raises(ModelError, match=sentence):
        audit_model(model, *sides)


@pytest.mark.parametrize(
    ("references", "sentence"),
    [
        (nn.Linear(1, 1), "must be a function train"),
        (([], np.zeros((400, 0))), "at least one model"),
        (([train], np.zeros((399, 1))), r"shape \(400, 1\)"),
        (lambda _, __: 3, "must be an nn.Module, or a function"),
        (lambda _, __: 1 / 0, "raised ZeroDivisionError"),
    ],
)
def test_references_that_are_none_are_refused(heart, sides, references, sentence: str):
    with pytest.raises(ConfigError, match=sentence):
        audit_model(heart, *sides, references=references)


def test_attacks_on_clients_and_a_single_reference_are_refused(heart, sides: Sides):
    with pytest.raises(ConfigError, match="audit a run"):
        audit_model(heart, *sides, attacks=["fedmia"])
    with pytest.raises(ConfigError, match="at least 2"):
        audit_model(heart, *sides, references=train, num_references=1)


def test_tables_do_as_well(heart: nn.Module, sides: Sides, found: ModelAudit):
    tables = [
        {"label": y.numpy(), **{f"f{i}": x[:, i].numpy() for i in range(x.shape[1])}}
        for x, y in sides
    ]
    told = audit_model(heart, tables[0], tables[1])
    assert told.figure("loss", "auc") == found.figure("loss", "auc")
