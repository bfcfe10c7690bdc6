"""Pages about runs for a browser on this machine; nothing is written."""
