"""What an audit of a model says, how it looks, and what it refuses in a sentence."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from auditor.tiny import train
from covey import ConfigError, ModelError, audit_model
from support.browsing import browser, needs_browser, problems

__all__ = ["browser"]


def test_json_holds_every_figure_with_its_interval(found):
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


def test_the_page_needs_nothing_beside_it(found, tmp_path):
    page = found.write_html(tmp_path / "below" / "audit.html")
    text = page.read_text()
    assert "http" not in text.partition("<body>")[2]
    assert "Members can be distinguished" in text
    assert "What this does not say" in text


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize(("scheme", "width"), [("light", 400), ("dark", 1300)])
def test_the_page_is_readable_narrow_and_wide_light_and_dark(
    browser, found, tmp_path, scheme, width
):
    page = found.write_html(tmp_path / "audit.html")
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    tab = context.new_page()
    tab.goto(page.as_uri())
    assert problems(tab, minor=True) == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    context.close()


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (lambda x: x[:, :1], "at least 4 classes"),
        (lambda x: x @ torch.zeros(3, 3), "found RuntimeError"),
    ],
)
def test_a_model_without_scores_is_refused(model, sentence, sides):
    with pytest.raises(ModelError, match=sentence):
        audit_model(model, *sides)


@pytest.mark.parametrize(
    ("references", "sentence"),
    [
        (nn.Linear(1, 1), "must be a function train"),
        (([train], np.zeros((399, 1))), r"shape \(400, 1\)"),
        (lambda _, __: 3, "must be an nn.Module, or a function"),
        (lambda _, __: 1 / 0, "raised ZeroDivisionError"),
    ],
)
def test_references_that_are_none_are_refused(heart, sides, references, sentence):
    with pytest.raises(ConfigError, match=sentence):
        audit_model(heart, *sides, references=references)
