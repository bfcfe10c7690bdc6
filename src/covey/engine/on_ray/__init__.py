"""An engine on the nodes of a Ray cluster (`docs/ray.md`)."""

__all__: list[str] = []
