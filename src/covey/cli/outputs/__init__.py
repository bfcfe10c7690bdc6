"""What commands print with `--json`, and what is in the JSON files that covey writes.

The site writes a JSON schema for each of these types, and tests hold what is really
printed and written to it. No command imports them when it runs.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
