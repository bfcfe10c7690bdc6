"""A cluster's model in several releases, each sharing more with the other clusters.

Only runs of covey 0.1 have more than one (`method.selection = "menu"`); they can still be
read. Models are numbered release by release: of K clusters with R releases, model e is
release e // K of cluster e mod K, and release 0 shares least.
"""

__all__ = ["fed"]


def fed(model: int, models: int, releases: int) -> range:
    """Return the models that are trained by a client that uses this one.

    Its own release and every one that shares more: nobody's examples go into a release
    that is riskier than the one that its owner chose.
    """
    return range(model, models, models // releases)
