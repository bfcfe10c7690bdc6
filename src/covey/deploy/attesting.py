"""Whose client each node is, as the operator of a federation attests it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from covey.build import anonymity_of
from covey.config import Config
from covey.data import read_organisations
from covey.deploy.diagnostics import Finding, error, fine
from covey.deploy.plan import Plan
from covey.errors import ConfigError, CoveyError

__all__ = ["ORGANISATIONS", "attested", "organisation_findings"]

ORGANISATIONS = "organisations.csv"
"""Whose client each one is: the operator's word, which no node can change."""


def attested(settings: dict[str, Any], out: Path, plan: Plan) -> Plan:
    """Return the plan with the organisations of its nodes; the settings name their file."""
    told = settings["population"]["organisations"]
    known = read_organisations(Path(told)) if told else {}
    known = {name: known[name] for name in plan.nodes if name in known}
    plan = replace(plan, organisations={**known, **plan.organisations})
    least = _least(settings)
    lacking = [name for name in plan.nodes if name not in plan.organisations]
    if least > 1 and lacking:
        raise ConfigError(
            f"merge.min_organisations = {least} needs to know whose client each node is, "
            f"found nothing of {lacking[0]!r}. Say --organisation {lacking[0]}=WHOSE."
        )
    if least > (found := len(set(plan.organisations.values()))) > 0:
        raise ConfigError(
            f"merge.min_organisations must be at most as many organisations as there are, "
            f"{found}, found {least}. Lower it."
        )
    if plan.organisations:
        settings["population"]["organisations"] = str(out / ORGANISATIONS)
    return plan


def organisation_findings(
    settings: dict[str, Any], nodes: Sequence[str]
) -> Iterator[Finding]:
    """Look whether the file of organisations says of every node what the merge needs."""
    told, least = settings["population"]["organisations"], _least(settings)
    if not told:
        if least > 1:
            found = (
                f"expected population.organisations, as merge.min_organisations = "
                f"{least} needs it, found none: no node would be let in. Name the file."
            )
            yield error("organisations", found)
        return
    try:
        known = read_organisations(Path(told))
    except CoveyError as problem:
        yield error("organisations", str(problem))
        return
    lacking = [name for name in nodes if name not in known]
    present = {known[name] for name in nodes if name in known}
    if least > 1 and lacking:
        found = (
            f"expected whose client each node is in {told}, found nothing of "
            f"{lacking[0]!r}, which would not be let in. Add a line for it."
        )
        yield error("organisations", found)
    elif least > len(present):
        found = (
            f"expected {least} organisations, as merge.min_organisations says, found "
            f"{len(present)}: no set would be complete. Correct {told}, or lower it."
        )
        yield error("organisations", found)
    else:
        yield fine("organisations", "it is known whose client each node is")


def _least(settings: dict[str, Any]) -> int:
    terms = anonymity_of(Config.of(settings))
    return terms.min_organisations if terms else 1
