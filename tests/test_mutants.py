import pytest

from mutants import ROOT, Mutant, mutants


@pytest.mark.parametrize("mutant", mutants(), ids=lambda each: each.name)
def test_a_mutant_stands_where_it_can_be_made_and_names_a_test_that_is_there(mutant: Mutant):
    assert mutant.count() == 1, f"{mutant.before!r} must stand once in {mutant.file}"
    assert mutant.before != mutant.after
    file, _, test = mutant.caught_by.partition("::")
    written = (ROOT / file).read_text()
    assert not test or f"def {test}(" in written, f"{file} has no test {test}"


def test_every_mutant_has_a_name_of_its_own():
    names = [each.name for each in mutants()]
    assert len(set(names)) == len(names)
