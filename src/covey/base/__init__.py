"""What every room rests on: names, random streams, events, files."""
