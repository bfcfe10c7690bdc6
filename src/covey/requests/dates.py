"""When a request has to be answered: GDPR Art. 12(3).

Without undue delay, and within one month of receipt; where that is necessary, two further
months, of which the requester is told with the reasons within the first one.

A month ends on the day of the same number, or where there is none, on the month's last day
(Regulation 1182/71, Art. 3(2)(c)). It is not made longer by holidays or weekends here.
"""

from calendar import monthrange
from datetime import date

from covey.errors import ConfigError

__all__ = ["EXTENDED_MONTHS", "MONTHS", "day_of", "due_date", "months_after"]

MONTHS = 1
EXTENDED_MONTHS = 3
"""Since receipt: one month, and two further ones."""


def months_after(day: date, months: int) -> date:
    """Return the day of the same number so many months later, or that month's last one.

    >>> months_after(date(2027, 1, 31), 1)
    datetime.date(2027, 2, 28)
    """
    years, month = divmod(day.month - 1 + months, 12)
    year, month = day.year + years, month + 1
    return date(year, month, min(day.day, monthrange(year, month)[1]))


def due_date(received: date, *, extended: bool = False) -> date:
    """Return the last day on which a request that came on `received` can be answered."""
    return months_after(received, EXTENDED_MONTHS if extended else MONTHS)


def day_of(text: str, what: str) -> date:
    """Return a day that was written as 2027-01-31.

    Raises:
        ConfigError: it is none.
    """
    try:
        return date.fromisoformat(text.strip())
    except ValueError as error:
        raise ConfigError(
            f"{what} takes a day as YEAR-MONTH-DAY, for example 2027-01-31, found "
            f"{text!r}. Write it so."
        ) from error
