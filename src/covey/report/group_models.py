"""Each group's model, and how good it is for those who chose it: the papers' "minority accuracy".

A group's own accuracy (`Summary.accuracy.by_group`) is that of its clients' data, whatever
models they use. IFCA-MIR's minority accuracy is that of the minority's model over the clients
that chose it: clients that left, at a cost, are not in it.

References:
    Jung, Biswas, Palamidessi, IFCA-MIR, 2025, sections 5.2.1 and 5.3.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from covey.report.clients import ClientSummary


@dataclass(frozen=True, slots=True)
class GroupModel:
    """The model of a group of clients.

    Attributes:
        cluster: the model's.
        clients: how many use it, of whatever group.
        accuracy: their mean, each on data like its own; None: nobody uses it, or it is not
            known of all of them.
        moved: how many of the group use another model.
    """

    cluster: int
    clients: int
    accuracy: float | None
    moved: int


def group_models(clients: Iterable[ClientSummary], num_clusters: int) -> Mapping[str, GroupModel]:
    """Give every group a model of its own: pi maximises sum_g |{i of group g: j_i = pi(g)}|.

    pi gives no two groups one model, so that a group most of which left for another's model
    still has the one that it left. Of equal ones the first is taken. Empty where fewer models
    than groups are there, or no groups are known.

    Args:
        clients: as they ended.
        num_clusters: how many models there are.
    """
    ended = [(client.group, client.end) for client in clients if client.end is not None]
    counts = Counter((group, end.cluster) for group, end in ended if group is not None)
    groups = sorted({group for group, _ in counts})
    if not 0 < len(groups) <= num_clusters:
        return {}
    from scipy.optimize import linear_sum_assignment

    table = np.array([[counts[group, j] for j in range(num_clusters)] for group in groups])
    own = linear_sum_assignment(table, maximize=True)[1].tolist()
    models: dict[str, GroupModel] = {}
    for group, j, row in zip(groups, own, table, strict=True):
        known = [end.accuracy for _, end in ended if end.cluster == j]
        whole = [value for value in known if value is not None]
        accuracy = fmean(whole) if known and len(whole) == len(known) else None
        models[group] = GroupModel(j, len(known), accuracy, int(row.sum() - row[j]))
    return models
