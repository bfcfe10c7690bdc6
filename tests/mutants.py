"""Faults that the default suite must catch, each put into a copy of the tree and played.

    python tests/mutants.py [NAMES]

`mutants.toml` has them. A mutant is caught if the test that is named beside it fails with
it, and passes without any.
"""

import compileall
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode

ROOT = Path(__file__).parents[1]
COPIED = ("src", "tests", "docs", "benchmarks", "pyproject.toml")
"""All that tests need."""
SECONDS = 300
"""A mutant that takes longer counts as one that survived."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: `before` stands once in the file, `after` takes its place.

    Attributes:
        caught_by: a test as pytest names it, or a file of tests, from the root.
    """

    name: str
    file: str
    before: str
    after: str
    caught_by: str

    def count(self, root: Path = ROOT) -> int:
        """Return how often `before` stands in the file."""
        file = root / self.file
        return file.read_text().count(self.before) if file.exists() else 0

    def played(self, root: Path) -> str:
        """Return what became of it in a copy of the tree, which is then as it was."""
        if self.count(root) != 1:
            return "no such text"
        file = root / self.file
        file.write_text(file.read_text().replace(self.before, self.after))
        try:
            code = passes(root, [self.caught_by])
        except subprocess.TimeoutExpired:
            return "SURVIVED: it takes too long"
        finally:
            shutil.copy2(ROOT / self.file, file)
        outcomes = {0: "SURVIVED", 1: "caught"}
        return outcomes.get(code, f"not played: pytest ended with {code}")


def mutants() -> tuple[Mutant, ...]:
    """Return all of `mutants.toml`."""
    with Path(__file__).with_suffix(".toml").open("rb") as file:
        return tuple(Mutant(**fields) for fields in tomllib.load(file)["mutant"])


def passes(root: Path, tests: Sequence[str]) -> int:
    """Return with what pytest ends on these tests of the default suite: 0 if all pass."""
    options = ("-q", "-x", "-m", "not slow", "-p", "no:cacheprovider")
    variables = {"PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=root,
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=SECONDS * len(tests),
        check=False,
    )
    return done.returncode


def main(names: Sequence[str]) -> int:
    """Play the mutants of these names, or all, and print a table; 1: not all are caught."""
    known = {mutant.name: mutant for mutant in mutants()}
    if strange := [name for name in names if name not in known]:
        print(f"there is no mutant {', '.join(strange)} in mutants.toml", file=sys.stderr)  # noqa: T201
        return 1
    chosen = [known[name] for name in names] or [*known.values()]
    with tempfile.TemporaryDirectory(prefix="covey-mutants-") as place:
        root = Path(place)
        stale = shutil.ignore_patterns("*.egg-info")  # entry points are those that are installed
        for name in COPIED:
            source, copy = ROOT / name, root / name
            if source.is_dir():
                shutil.copytree(source, copy, ignore=stale)
            else:
                shutil.copy2(source, copy)
        # by hash: a file that changes twice within a second may have the same size and time
        by_hash = PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(root / "src", quiet=1, force=True, invalidation_mode=by_hash)
        if passes(root, sorted({mutant.caught_by for mutant in chosen})):
            print("without a mutant all tests must pass: run them first", file=sys.stderr)  # noqa: T201
            return 1
        outcomes = [_printed(mutant, mutant.played(root)) for mutant in chosen]
    print(f"{outcomes.count('caught')} of {len(outcomes)} caught")  # noqa: T201
    return int(set(outcomes) != {"caught"})


def _printed(mutant: Mutant, outcome: str) -> str:
    print(f"{mutant.name:44} {outcome:12} {mutant.caught_by}", flush=True)  # noqa: T201
    return outcome


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
