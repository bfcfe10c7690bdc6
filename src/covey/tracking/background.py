"""Work that nobody waits for, in a thread of its own."""

from collections.abc import Callable, Iterator
from threading import Condition, Thread
from time import monotonic
from typing import Generic, TypeVar

__all__ = ["PATIENCE", "Background"]

PATIENCE = 10.0
"""Seconds without a sign of life after which the end is not waited for any more."""

T = TypeVar("T")


class Background(Generic[T]):
    """Hands the newest of what it is told to somebody who may be slow, hang or fail.

    Whoever tells never waits: only the newest is kept, so it must hold what came before.
    """

    def __init__(
        self,
        act: Callable[[T], Iterator[object]],
        close: Callable[[], None],
        failed: Callable[[str], None],
    ) -> None:
        """Start the thread.

        Args:
            act: called with the newest; each thing that it yields is a sign of life.
            close: called last, if nothing failed.
            failed: called once with what happened, if `act` or `close` raised or hung.
        """
        self._act, self._close, self._failed = act, close, failed
        self._changed = Condition()
        self._newest: T | None = None
        self._closing = self._idle = self._lost = False
        self._alive = monotonic()
        self._thread = Thread(target=self._work, daemon=True)
        self._thread.start()

    def tell(self, newest: T) -> None:
        """Have this handed on, once what was told before is done with."""
        with self._changed:
            self._newest = newest
            self._changed.notify()

    def stop(self) -> None:
        """Have it end after the newest; see `wait`."""
        with self._changed:
            self._closing = True
            self._alive = monotonic() if self._idle else self._alive
            self._changed.notify()

    def wait(self) -> None:
        """Wait for the end, as long as there are signs of life."""
        while self._thread.is_alive():
            left = self._alive + PATIENCE - monotonic()
            if left <= 0:
                return self._lose(f"it has not answered for {PATIENCE:g} s")
            self._thread.join(left)
        return None

    def _work(self) -> None:
        try:
            while (newest := self._next()) is not None:
                for _ in self._act(newest):
                    self._alive = monotonic()
                    if self._lost:
                        return
            self._close()
        except BaseException as error:  # whatever somebody's code raises
            self._lose(f"{type(error).__name__}: {error}")

    def _next(self) -> T | None:
        """Wait for the newest; None: there will be none."""
        with self._changed:
            self._idle = True
            self._changed.wait_for(lambda: self._newest is not None or self._closing)
            self._idle, self._alive = False, monotonic()
            newest, self._newest = self._newest, None
            return newest

    def _lose(self, why: str) -> None:
        with self._changed:
            known, self._lost = self._lost, True
        if not known:
            self._failed(why)
