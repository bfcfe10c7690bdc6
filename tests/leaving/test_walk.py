"""From `covey forget` to the signed proof: how much somebody reads who follows a request."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

import covey
from covey.cli.commands import app
from covey.leaving import case
from covey.ledger.backends import Database
from covey.ledger.store import Ledger

WRITTEN_NOWHERE = {"<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>", "<lambda>", "__init__"}
"""Part of the function around them, or made by a dataclass."""
OF_A_ROUND = {"build_run", "play_round", "finalize"}
"""What a replayed round takes: the run built of its settings, the round, the run's end."""
PHASES = ("record", "tidy", "replay", "sign", "close")
SETTINGS = {
    "rounds": 2,
    "engine": {"name": "reference"},
    "population": {"clients": 12, "examples_per_client": 20},
}


class Walk:
    """What a command entered of covey, but for what a replayed round takes."""

    def __init__(self) -> None:
        self.entered = set[tuple[str, str]]()
        self.phases = list[str]()
        self.inside = 0

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        module, code = str(frame.f_globals.get("__name__")), frame.f_code
        if event not in ("call", "return") or not module.startswith("covey."):
            return
        if code.co_name in OF_A_ROUND:
            self.inside += 1 if event == "call" else -1
        elif event == "call" and not self.inside and code.co_name not in WRITTEN_NOWHERE:
            self.entered.add((module, code.co_qualname))
            if module == case.__name__ and code.co_name in PHASES:
                self.phases.append(code.co_name)


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> tuple[Walk, Counter[str], Counter[int]]:
    """The walk of a retraining on two rounds of twelve clients; transactions; events read."""
    folder = tmp_path_factory.mktemp("walk") / "run"
    covey.run(config=covey.Config.of(SETTINGS), out=folder)
    transactions, read = Counter[str](), Counter[int]()

    def counted(name: str):
        begin = getattr(Database, name)

        @contextmanager
        def transaction(self: Database) -> Iterator[object]:
            nested = sys._getframe(2).f_code.co_name == "writing"
            transactions[name] += not nested
            with begin(self) as connection:
                yield connection

        return transaction

    pieces, seen = Ledger.pieces, Walk()

    def counted_pieces(self: Ledger, after: object = None):
        for links in pieces(self, after):  # pyright: ignore[reportArgumentType]
            read.update(link.position for link in links)
            yield links

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "reading", counted("reading"))
        patch.setattr(Database, "writing", counted("writing"))
        patch.setattr(Ledger, "pieces", counted_pieces)
        sys.setprofile(seen)
        try:
            app(
                ["forget", str(folder), "client-00003", "--answer", "retrain"],
                standalone_mode=False,
            )
        finally:
            sys.setprofile(None)
    return seen, transactions, read


def test_a_case_goes_through_its_phases_once_and_in_order(walk):
    assert walk[0].phases == list(PHASES)


def test_the_ledger_is_read_once_and_written_in_few_transactions(walk):
    _, transactions, read = walk
    assert set(read.values()) == {1}
    assert transactions.total() <= 60, transactions


def test_a_request_passes_few_functions(walk):
    """By floors: those that a newcomer reads, and all that stand below and beside them."""
    entered = walk[0].entered
    near = {each for each in entered if each[0].split(".")[1] in ("leaving", "runs")}
    files = {module for module, _ in entered}
    passed = f"{len(entered)} functions in {len(files)} files, {len(near)} of leaving and runs"
    print(f"{passed}; {walk[1].total()} transactions")  # noqa: T201
    assert len(near) <= 250, len(near)
    assert len({module for module, _ in near}) <= 32
    assert len(entered) <= 800, len(entered)
