from .checking import check_dossier
from .facts import Trace, dossier_facts, traces_of
from .writing import write_dossier

__all__ = [
    "Trace",
    "check_dossier",
    "dossier_facts",
    "traces_of",
    "write_dossier",
]
