"""What a peer is asked to train, and when: plain torch, for another environment.

Programs beside this one are started as `python PROGRAM TASK THREADS` where covey is not
installed (`make bench-peers`), and play a round for every line that they read.
"""

import os
import sys
from functools import cache
from typing import Any

import torch


@cache
def read_task(path: str) -> dict[str, Any]:
    """Return the task: `model`, `clients`, and numbers; images are floats by now."""
    # our own file, of a module and tensors
    task = torch.load(path, weights_only=False)
    task["clients"] = [
        (x.float() / 255 if x.dtype == torch.uint8 else x, y) for x, y in task["clients"]
    ]
    return task


class Turns:
    """A line from whoever measures begins a round, and a line tells it that it is over."""

    def __init__(self) -> None:
        # What others print goes with the errors.
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._playing = False

    def begin(self) -> bool:
        """End the round before, if there is one, and wait for the next; False: no more."""
        self.end()
        self._say("ready")
        self._playing = sys.stdin.readline().strip() == "go"
        return self._playing

    def end(self) -> None:
        """Say that the round is over."""
        if self._playing:
            self._say("done")
        self._playing = False

    def _say(self, word: str) -> None:
        print(word, file=self._out, flush=True)
