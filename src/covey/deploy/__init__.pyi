from .checks import check
from .diagnostics import Finding
from .folder import write_federation
from .node import NodeFile
from .plan import Plan
from .status import NoAnswerError, Node, Run, Status, nodes_of, status_of

__all__ = [
    "Finding",
    "NoAnswerError",
    "Node",
    "NodeFile",
    "Plan",
    "Run",
    "Status",
    "check",
    "nodes_of",
    "status_of",
    "write_federation",
]
