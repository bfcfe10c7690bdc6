"""All settings of a run, what cannot be had together, and the run that they make."""
