from .app import application
from .server import Server, serve

__all__ = ["Server", "application", "serve"]
