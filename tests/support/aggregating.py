"""Aggregations as tests call them: on all updates of a round."""

from collections.abc import Iterable

from covey import AggregationResult, ClientUpdate, Streams
from covey.aggregation.base import BeginRound, ClusterMeans
from covey.aggregation.server import Models


def aggregated(
    begin: BeginRound, models: Models, updates: Iterable[ClientUpdate], streams: Streams
) -> AggregationResult:
    """Return what an aggregation makes of these updates, some of which it may take twice."""
    aggregation, sent = begin(models, streams), list(updates)
    for update in sent:
        aggregation.add(update)
    result = aggregation.result()
    if result.again:
        by_handle = {update.handle: update for update in sent}
        for handle in result.again:
            aggregation.add(by_handle[handle])
        result = aggregation.result()
    return result


def means(models: Models, streams: Streams) -> ClusterMeans:
    """Begin the weighted mean of a round."""
    del streams
    return ClusterMeans(models)
