"""What companions may import of the core: a contract of import-linter.

    [[tool.importlinter.contracts]]
    name = "..."
    type = "seams"
    core = "covey"
    companions = ["covey_flower"]
    page = "docs/concepts/architecture.md"

A companion imports no other companion; of the core the package itself, and those inner modules
that the page's table of seams lists. A seam that no companion imports is one too many.
"""

import re
from pathlib import Path
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, output
from importlinter.domain import fields

TABLE = re.compile(r"^#+ Seams\n(.*?)(?=^#)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| `(\w+)` \| (.*) \|$", re.MULTILINE)


def seams_of(page: Path, core: str) -> frozenset[str]:
    """Return the modules in a page's table of seams, by whole names."""
    (table,) = TABLE.findall(page.read_text("utf-8"))
    rows = ROW.findall(table)
    return frozenset(
        f"{core}.{room}.{name}" for room, text in rows for name in re.findall(r"`(\w+)`", text)
    )


class SeamsContract(Contract):
    """Companions use the core's public names, and its seams."""

    core: Any = fields.StringField()
    companions: Any = fields.ListField(subfield=fields.StringField())
    page: Any = fields.StringField()

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002, FBT001
        """Compare what companions import with what they may."""
        seams, used = seams_of(Path(self.page), self.core), set[str]()
        strangers: list[tuple[str, str]] = []
        for companion in self.companions:
            others = {self.core, *self.companions} - {companion}
            for module in (companion, *graph.find_descendants(companion)):
                for imported in graph.find_modules_directly_imported_by(module):
                    used |= seams & {imported}
                    is_inner = imported.partition(".")[0] in others and imported != self.core
                    if is_inner and imported not in seams:
                        strangers.append((module, imported))
        found = {"strangers": sorted(strangers), "unused": sorted(seams - used)}
        return ContractCheck(kept=not any(found.values()), metadata=found)

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Say which import is none of a seam, and which seam is none."""
        for module, imported in check.metadata["strangers"]:
            output.print_error(f"{module} imports {imported}, which is no seam.")
        for seam in check.metadata["unused"]:
            output.print_error(f"{seam} is listed as a seam, and no companion imports it.")
