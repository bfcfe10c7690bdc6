"""What is raised for a message that is not in order."""

__all__ = ["InvalidMessageError"]


class InvalidMessageError(Exception):
    """An answer is not in order."""
