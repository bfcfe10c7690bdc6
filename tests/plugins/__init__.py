"""A user's package: components that no line of covey knows, through public names only."""
