"""When a request is due: a month is a month, whatever its length."""

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey import ConfigError
from covey_desk.request import day_of, due_date, months_after

DAYS = st.dates(date(1990, 1, 1), date(2200, 12, 31))
MONTHS = st.integers(0, 40)


@pytest.mark.parametrize(
    ("received", "due", "extended"),
    [
        ("2027-01-31", "2027-02-28", "2027-04-30"),
        ("2028-01-31", "2028-02-29", "2028-04-30"),
        ("2026-11-30", "2026-12-30", "2027-02-28"),
        ("2027-12-01", "2028-01-01", "2028-03-01"),
        ("2100-01-29", "2100-02-28", "2100-04-29"),
    ],
)
def test_by_hand(received, due, extended):
    day = date.fromisoformat(received)
    assert due_date(day).isoformat() == due
    assert due_date(day, extended=True).isoformat() == extended


@given(DAYS, MONTHS)
def test_the_month_is_so_many_later_and_the_day_the_same_or_the_last(day, months):
    then = months_after(day, months)
    assert (then.year - day.year) * 12 + then.month - day.month == months
    last = (then + timedelta(days=1)).month != then.month
    assert then.day == day.day or (then.day < day.day and last)


def test_a_day_is_written_in_one_way():
    assert day_of(" 2027-01-31", "--on") == date(2027, 1, 31)
    for text in ("31.1.2027", "2027-02-30", "soon", ""):
        with pytest.raises(ConfigError, match="--on must be"):
            day_of(text, "--on")
