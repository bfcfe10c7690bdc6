"""Linear heads that are solved from sums over clients instead of trained."""
