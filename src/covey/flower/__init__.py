"""covey on Flower: the same runs, with clients that are really apart.

Needs `pip install covey[flower]`.
"""

from covey.flower.apps import Federated, client_app, covey_mod, server_app

__all__ = ["Federated", "client_app", "covey_mod", "server_app"]
