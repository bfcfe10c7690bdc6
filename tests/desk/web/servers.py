"""A server of pages in this process, for as long as a test needs one."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from covey_desk.web.app import Server, serve

__all__ = ["serving"]


@contextmanager
def serving(root: Path) -> Iterator[Server]:
    server = serve([root], 0, lambda _: None)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()
