from .meaning import flat, heeded, that_matter, unused
from .problems import Problem, together
from .reading import config_of, load_config, put, read_settings
from .schema import Setting, schema, settings
from .sections import Section
from .settings import Config
from .unheeded import Unheeded, unheeded, why_unheeded

__all__ = [
    "Config",
    "Problem",
    "Section",
    "Setting",
    "Unheeded",
    "config_of",
    "flat",
    "heeded",
    "load_config",
    "put",
    "read_settings",
    "schema",
    "settings",
    "that_matter",
    "together",
    "unheeded",
    "unused",
    "why_unheeded",
]
