"""Every setting of a run: frozen, validated once, read from TOML."""

from covey.config.meaning import flat, that_matter, unused
from covey.config.reading import load_config
from covey.config.settings import Config

__all__ = ["Config", "flat", "load_config", "that_matter", "unused"]
