"""An audit of any classifier: what it gives away about the records that it learnt."""
