"""What the papers behind covey measured, measured anew, and parts that only they need."""
