"""What the papers behind covey measured, measured anew with covey's public names."""

__all__: list[str] = []
