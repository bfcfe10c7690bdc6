"""Every setting of a run: frozen, validated once, read from TOML."""

from covey.config.capability_page import capability_page
from covey.config.compatibility import claims_of
from covey.config.data_constraints import (
    brings_clients,
    is_passed,
    is_remote,
    kind_of,
    reads_files,
    refuse_conflicts,
)
from covey.config.identity import flat, heeded, that_matter, unused
from covey.config.ledger_url import without_passwords
from covey.config.loader import config_of, load_config, put, read_settings
from covey.config.problems import together
from covey.config.schema import schema, settings
from covey.config.sections import Figure, Section, StoppingConfig
from covey.config.settings import Config
from covey.config.unheeded import Unheeded, unheeded, why_unheeded

__all__ = [
    "Config",
    "Figure",
    "Section",
    "StoppingConfig",
    "Unheeded",
    "brings_clients",
    "capability_page",
    "claims_of",
    "config_of",
    "flat",
    "heeded",
    "is_passed",
    "is_remote",
    "kind_of",
    "load_config",
    "put",
    "read_settings",
    "reads_files",
    "refuse_conflicts",
    "schema",
    "settings",
    "that_matter",
    "together",
    "unheeded",
    "unused",
    "why_unheeded",
    "without_passwords",
]
