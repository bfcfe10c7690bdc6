"""The controller of the processing (GDPR Art. 4(7)), as the user's own `desk.toml` names it."""

import tomllib

from covey import ConfigError
from covey.base.files import read_text, user_folder
from covey.base.names import do_you_mean

ENTRIES = ("name", "address", "contact", "data_protection_officer", "authority")


def read_controller() -> dict[str, str]:
    """Return what fills letters and exports; for each missing entry, a blank that says which.

    Raises:
        ConfigError: `desk.toml` cannot be read, or says something else.
    """
    path = user_folder() / "desk.toml"
    try:
        table = tomllib.loads(read_text(path)) if path.is_file() else {}
        entries = {**table.pop("controller", {})}
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"{path} must be TOML with a table [controller], found {error}: correct it."
        ) from error
    wrong = [
        key for key, text in entries.items() if key not in ENTRIES or not isinstance(text, str)
    ]
    for key in (*table, *wrong):
        raise ConfigError(
            f"[controller] in {path} must have the texts {', '.join(ENTRIES)}, found {key!r}: "
            f"correct it.{do_you_mean(key, ENTRIES)}"
        )
    return {key: entries.get(key) or f"________ (controller.{key})" for key in ENTRIES}
