"""What covey rests on has a known licence, and pins that say the same."""

import re
from pathlib import Path

import pytest

from supply.licences import all_needed, licence_of, page

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"^([\w.-]+)==([\w.+]+)", re.MULTILINE)
FREE = re.compile(r"Apache|MIT|BSD|PSF|Python Software Foundation|MPL|Mozilla|ISC|Zlib|GPL")


def pins(name: str) -> dict[str, str]:
    found = PIN.findall((ROOT / name).read_text())
    return {re.sub(r"[-_.]+", "-", each.lower()): version for each, version in found}


@pytest.mark.slow
def test_every_distribution_has_a_known_licence():
    assert [name for name in all_needed() if not FREE.search(licence_of(name))] == []


def test_no_copyleft_comes_with_a_plain_install():
    needed = all_needed()
    assert [n for n, extra in needed.items() if not extra and "GPL" in licence_of(n)] == []


def test_the_page_lists_what_is_installed():
    assert (ROOT / "LICENCES.md").read_text() == page()


def test_everything_that_is_needed_is_pinned():
    assert set(all_needed()) <= set(pins("constraints.txt"))


def test_the_pins_with_hashes_are_the_pins():
    hashed = pins("constraints.hashes.txt")
    assert {**hashed, "torch": pins("constraints.txt")["torch"]} == pins("constraints.txt")
