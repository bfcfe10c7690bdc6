"""The choices of `engine.name` that covey brings: each in its own file."""

__all__: list[str] = []
