"""How fast and how small covey is: ratios of two measurements within one run."""
