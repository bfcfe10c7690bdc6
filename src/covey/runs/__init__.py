"""Playing a run: the loop, its folder, and what it measures."""
