"""Names of random streams: under another name, every run has other draws."""

import ast
from collections.abc import Iterator
from pathlib import Path

import covey

NAMES = """
... / hands, anonymity set / ... / ..., architecture, asked, attack / ..., audit, audit of a
finished run, audit of a model, augment / ..., blind / ..., bootstrap / ..., budget / ..., canaries
of one run, choice / ..., cluster / ..., cohort, cohort / ..., dealt / ..., dropout, equal scores,
fairness, features, folds, folds / ..., folds / ... / ..., gabor, gradients, groups, half / ... /
..., halves, handle / ..., heads, initial model, initial model / ..., inputs, leaving / ..., local
training / ..., merge, model / ..., negative control, newcomers / ..., noise, non-members,
non-members of other kinds / ..., one more round, optima, order, own noise / ..., own risk / ...,
pairs / ..., participation game, partition, partition / ..., pink noise, pool, private steps,
random-patches, rebalancing, red team / ..., reference / ..., representative, request / ...,
reserved, round / ..., seed, selection batch / ..., shadow, shadow / ..., shift, shift / ..., sketch
/ ..., source, split, split / ..., start / ..., sum / ... / noise, test, threshold / ...,
tombstones, training, trial, verdict
"""


def test_every_stream_keeps_its_name():
    sources = Path(covey.__file__).parents[1].glob("covey*/**/*.py")  # of companions, too
    names = {name for source in sources for name in names_in(source.read_text("utf-8"))}
    assert sorted(names) == NAMES.replace("\n", " ").strip().split(", ")


def names_in(source: str) -> Iterator[str]:
    """Yield the words by which streams are asked for, "..." for what varies."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(attr="at"), args=args):
                words = [_word(arg) for arg in args]
                if set(words) - {"..."}:
                    yield " / ".join(words)
            case _:
                pass


def _word(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(word)):
            return word
        case _:
            return "..."
