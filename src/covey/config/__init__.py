"""Every setting of a run: frozen, validated once, read from TOML."""

from covey.config.meaning import flat, heeded, that_matter, unused
from covey.config.reading import config_of, load_config, put
from covey.config.sections import Section
from covey.config.settings import Config

__all__ = [
    "Config",
    "Section",
    "config_of",
    "flat",
    "heeded",
    "load_config",
    "put",
    "that_matter",
    "unused",
]
