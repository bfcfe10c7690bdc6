"""Programs that run in the peers' own environment (`make bench-peers`), without covey.

Each is started as `python PROGRAM TASK THREADS` and plays a round for every line it reads.
"""
