"""A cluster's model in several releases, each sharing more with the other clusters.

Models are numbered release by release: of K clusters with R releases, model e is release
e // K of cluster e mod K, and release 0 shares least. Without a menu there is one release,
and model j is cluster j.
"""

__all__ = ["cluster_of", "fed"]


def fed(model: int, models: int, releases: int) -> range:
    """Return the models that are trained by a client that uses this one.

    Its own release and every one that shares more: nobody's examples go into a release
    that is riskier than the one that its owner chose.
    """
    return range(model, models, models // releases)


def cluster_of(model: int, models: int, releases: int) -> int:
    """Return the cluster whose release this model is."""
    return model % (models // releases)
