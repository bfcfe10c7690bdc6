"""Whose client each node is, as the operator of a federation attests it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from covey.build import anonymity_of
from covey.config import Config
from covey.data import read_organisations
from covey.deploy.plan import Plan
from covey.errors import ConfigError

__all__ = ["ORGANISATIONS", "attested"]

ORGANISATIONS = "organisations.csv"
"""Whose client each one is: the operator's word, which no node can change."""


def attested(settings: dict[str, Any], out: Path, plan: Plan) -> Plan:
    """Return the plan with the organisations of its nodes; the settings name their file."""
    told = settings["population"]["organisations"]
    known = read_organisations(Path(told)) if told else {}
    known = {name: known[name] for name in plan.nodes if name in known}
    plan = replace(plan, organisations={**known, **plan.organisations})
    terms = anonymity_of(Config.of(settings))
    least = terms.min_organisations if terms else 1
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
