"""From settings to functions: the only place where a string becomes behaviour."""
