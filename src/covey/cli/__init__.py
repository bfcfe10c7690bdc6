"""The command line, and what a package needs to add a command to it."""
