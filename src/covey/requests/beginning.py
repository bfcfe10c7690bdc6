"""Beginning to answer a case: what is to be done by hand, while the name finds it."""

from collections.abc import Sequence

from covey.requests.case import Case
from covey.requests.facts import AnswerBegun, Fact, ItemAdded, RunsSearched
from covey.requests.holdings import ByHand, Holdings
from covey.requests.plans import hand_list
from covey.requests.register import Register, handle_of, text_handle

__all__ = ["begin_case", "with_runs"]


def with_runs(
    register: Register, case: Case, places: Sequence[str]
) -> tuple[RunsSearched, dict[str, str]]:
    """Return the fact that these runs know a case's name, and the runs' paths."""
    texts = register.texts()
    handles = {handle_of("r", each, texts): each for each in places}
    return RunsSearched(case=case.number, known=tuple(handles)), handles


def begin_case(
    register: Register, case: Case, name: str, found: Holdings, wanted: str
) -> None:
    """List what is to be done by hand, and say that answering begins, at once.

    Later, the same for runs that were not known yet, and for another answer.
    """
    places, texts = found.runs_of(name), register.texts()
    before = [texts[each] for each in case.known] if case.wanted else []
    new = [each for each in places if each not in before]
    items = [item for place in new for item in hand_list(place, name, places)]
    items += [_unreadable(each.place, each.reason) for each in found.unreadable]
    listed = {texts[each.text] for each in case.items}
    items = [each for each in dict.fromkeys(items) if each.text not in listed]
    if case.wanted and not (new or items) and wanted in ("", case.wanted):
        return
    known = dict.fromkeys((*(texts[each] for each in case.known), *places))
    searched, handles = with_runs(register, case, [*known])
    facts: list[Fact] = [searched]
    for number, item in enumerate(items, start=len(case.items) + 1):
        handle = text_handle()
        handles[handle] = item.text
        facts.append(
            ItemAdded(case=case.number, item=number, kind=item.kind, text=handle)
        )
    begun = AnswerBegun(case=case.number, wanted=wanted or case.wanted or "auto")
    register.record([*facts, begun], handles)


def _unreadable(place: str, reason: str) -> ByHand:
    return ByHand(
        "other",
        f"{place} could not be read from its folder, so that nobody can say whether it "
        f"knows the name: {reason or 'only its ledger is here'}. Find out, or repair it.",
    )
