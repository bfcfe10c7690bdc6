"""Folders from which a federation on Flower is started, and what can be said of them.

Nothing here needs Flower until a federation is asked how it is.
"""

from covey.deploy.checks import check
from covey.deploy.findings import Finding
from covey.deploy.folder import write_federation
from covey.deploy.node import NodeFile
from covey.deploy.plan import Plan
from covey.deploy.status import NoAnswerError, Node, Run, Status, nodes_of, status_of

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
