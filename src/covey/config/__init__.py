"""Every setting of a run: frozen, validated once, read from TOML."""

from covey.config.reading import load_config
from covey.config.settings import Config

__all__ = ["Config", "load_config"]
