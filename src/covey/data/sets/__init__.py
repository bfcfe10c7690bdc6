"""The data sources that covey brings: each in its own file."""
