from collections import Counter

from mutants import ROOT, mutants


def test_a_mutant_stands_where_it_can_be_made_and_names_a_test_that_is_there():
    for mutant in mutants():
        assert mutant.count() == 1, f"{mutant.before!r} must stand once in {mutant.file}"
        assert mutant.before != mutant.after
        file, _, test = mutant.caught_by.partition("::")
        written = (ROOT / file).read_text()
        assert not test or f"def {test}(" in written, f"{file} has no test {test}"
    assert set(Counter(mutant.name for mutant in mutants()).values()) == {1}
