"""The bench of subtractions, on a federation that is solved in no time."""

from pathlib import Path

from covey_papers.bench import SubtractionSize, waits


def test_every_leaver_gets_a_proof_that_verifies(tmp_path: Path) -> None:
    size = SubtractionSize(clients=24, features=8, answers=2)
    found = list(waits(size, tmp_path))
    assert [each.failed for each in found] == [(), ()]
    assert all(each.seconds > 0 for each in found)
