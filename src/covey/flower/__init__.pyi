from .apps import Federated, server_app
from .client import client_app, covey_mod

__all__ = ["Federated", "client_app", "covey_mod", "server_app"]
