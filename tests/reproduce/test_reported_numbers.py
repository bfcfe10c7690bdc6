"""What the second paper's printed seconds say of its headline."""

import pytest

from covey_papers.reproduce.specification import experiment
from covey_papers.reproduce.theory import arithmetic


@pytest.fixture(scope="module")
def found():
    return arithmetic(experiment("deniable-headline"))


@pytest.fixture(scope="module")
def ratios(found):
    """Factors by model and data set, and k."""
    return {(c.row, c.column): c.mean for c in found.cells if c.row != "claimed"}


def test_two_cells_by_hand(ratios):
    named = ratios["ResNet-mini, FMNIST-noniid", "k=8"]
    assert named == pytest.approx(331.2 / 14.56)
    assert round(named, 1) == 22.7
    least = ratios["ResNet-mini, FMNIST-iid", "k=4"]
    assert least == pytest.approx(253.09 / 206.43)


def test_the_claimed_range_follows_from_no_cell(found, ratios):
    assert min(ratios.values()) < 1.3  # not 1.6
    assert max(ratios.values()) == pytest.approx(1362.2 / 0.004)  # not 500,769
    assert not any(round(each) == 500_769 for each in ratios.values())
    claims = {c.column: (c.printed.value, c.mean) for c in found.cells[:3]}
    assert claims == {
        "abstract, lower end": (1.6, min(ratios.values())),
        "abstract, upper end": (500_769.0, max(ratios.values())),
        "section 4, k = 8, FMNIST, non-iid": (500_769.0, pytest.approx(22.747, abs=1e-3)),
    }
    assert "1.23 to 340,550 times" in found.notes[0]
    assert "22.7" in found.notes[0]
