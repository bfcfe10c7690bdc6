from runtime.conftest import settings

__all__ = ["settings"]
