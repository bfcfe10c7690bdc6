"""What a monitoring system reads of runs: Prometheus's text format, version 0.0.4.

Lines of text do not need a library. No label holds a client, a person or words of theirs.
"""

from collections import Counter
from collections.abc import Iterator

from covey.aggregation.base import NOT_FINITE
from covey.base.events import AnswerRefused, AnswersMissing, ClientsWaited, NewcomersWaited
from covey.secure_sums.messages import Reason
from covey_desk.web.pages import requests_page
from covey_desk.web.runs import FollowedRun, WatchedRuns

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
METRICS = {
    "covey_run_state": ("gauge", "1, with the state of the run."),
    "covey_rounds": ("gauge", "Rounds that were played and count."),
    "covey_round_participants": ("gauge", "Clients of the last round."),
    "covey_clients_waiting": ("gauge", "Clients that the last round made wait."),
    "covey_clients_missing": ("gauge", "Clients that sent nothing in time in the last round."),
    "covey_answers_refused_total": ("counter", "Answers that were refused, by reason."),
    "covey_open_requests": ("gauge", "Requests to leave that wait for the run's answer."),
    "covey_register_open_requests": ("gauge", "Requests of the register that are not closed."),
    "covey_deadline_days": ("gauge", "Days to the next deadline; below 0: overdue."),
}
"""Type and meaning of each metric. A figure that is unknown is omitted."""

Sample = tuple[str, dict[str, str], float | None]
"""A metric, its labels, and its value; None: unknown."""


_REASONS = {reason.value: reason.name.lower() for reason in Reason}


def metrics_text(runs: WatchedRuns) -> str:
    """Return the figures of all runs and of the register.

    Labels are a run's key, as it stands in the address of its page, and words of closed sets.
    """
    samples = [
        *_of_register(runs),
        *(sample for run in runs.all() for sample in _of_run(runs, run)),
    ]
    lines: dict[str, list[str]] = {name: [] for name in METRICS}
    for name, labels, value in samples:
        if value is not None:
            pairs = ",".join(f'{key}="{text}"' for key, text in labels.items())
            lines[name].append(f"{name}{{{pairs}}} {value}" if pairs else f"{name} {value}")
    return "".join(
        f"# HELP {name} {METRICS[name][1]}\n# TYPE {name} {METRICS[name][0]}\n"
        + "".join(f"{line}\n" for line in known)
        for name, known in lines.items()
        if known
    )


def _of_register(runs: WatchedRuns) -> Iterator[Sample]:
    page = requests_page(runs.roots)
    if page["requests"] and not page["problems"]:  # of half the requests no figure is true
        waiting = page["waiting"]
        yield "covey_register_open_requests", {}, len(waiting)
        yield (
            "covey_deadline_days",
            {},
            min((request.days_left for request in waiting), default=None),
        )


def _of_run(runs: WatchedRuns, run: FollowedRun) -> Iterator[Sample]:
    """Yield a run's figures; those of its rounds while it is not at its end."""
    of, line = {"run": run.key}, runs.line(run)
    yield "covey_run_state", {**of, "state": line.state}, 1
    yield "covey_rounds", of, line.rounds_played
    yield "covey_open_requests", of, line.open_requests
    if line.state not in ("running", "waiting"):
        return
    snapshot = run.look()
    if snapshot.problem or not snapshot.history.rounds:
        return
    history, last = snapshot.history, snapshot.history.rounds[-1]
    events = [event for t, event in snapshot.record.events if t == last.round_index]
    newcomers = sum(event.waiting for event in events if isinstance(event, NewcomersWaited))
    without_a_sum = {
        h for event in events if isinstance(event, ClientsWaited) for h in event.clients
    }
    missing = {h for event in events if isinstance(event, AnswersMissing) for h in event.handles}
    yield "covey_round_participants", of, last.participants
    yield "covey_clients_waiting", of, newcomers + len(without_a_sum)
    yield "covey_clients_missing", of, len(missing)
    refused = (event for event in history.all_events if isinstance(event, AnswerRefused))
    reasons = Counter(map(_reason, refused))
    for reason, count in sorted(reasons.items()):
        yield "covey_answers_refused_total", {**of, "reason": reason}, count


def _reason(event: AnswerRefused) -> str:
    """Return a word of a closed set: an event's own words may quote what a client sent."""
    if event.handle is None:
        return "not_admitted"
    if event.reason.endswith(NOT_FINITE):
        return "not_finite"
    return _REASONS.get(event.reason, "other")
