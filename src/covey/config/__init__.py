"""Every setting of a run: frozen, validated once, read from TOML."""
