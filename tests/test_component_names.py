"""Nothing but a component's own file and the table of built-ins knows its name.

What is prose is no concern of this: docstrings, descriptions and messages may name a
component. A name in code makes a new component change other files.
"""

import ast
import re
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from covey.base.built_ins import BUILT_INS

ROOT = Path(__file__).parent.parent / "src"
TABLE = "covey.base.built_ins"

PATHS = {path for found in BUILT_INS.values() for path in found.values()}
NAMES = {kind: set(found) for kind, found in BUILT_INS.items()}
for point in entry_points(group="covey.components"):
    kind, _, name = point.name.partition(".")
    if point.dist and point.dist.name == "covey":
        NAMES[kind].add(name)
        PATHS.add(point.value)
OWN = {
    (path.partition(":")[0], name) for found in BUILT_INS.values() for name, path in found.items()
}
CLASSES = {path.partition(":")[2]: path.partition(":")[0] for path in PATHS}

ALIASES = {
    "aggregation": "aggregation",
    "method": "algorithm",
    "attacks": "attack",
    "estimator": "risk_estimator",
    "risk": "risk_estimator",
    "source": "risk_estimator",
}
"""What a setting or a variable is called that holds a component's name, if not its kind."""

ORDINARY = {
    *("auto", "client", "constant", "cosine", "digits", "entropy", "local", "loss"),
    *("mean", "median", "momentum", "none", "parallel", "plain", "python", "reference"),
    *("ray", "shadow", "step", "task", "threshold", "linear", "rotation", "brightness"),
}
"""Names that mean other things too: they count where a component is spoken of."""

ALLOWED = {("covey.engine.recipe", "isinstance Sgd")}
"""`Recipe(momentum=...)` is short for an option of the optimizer that it has by default."""

RULES = "covey.settings.rules"
"""Where components are held against each other, by their classes."""


def kinds_of(word: str) -> set[str]:
    """The kinds whose components a setting or a variable of this name holds."""
    return {ALIASES.get(word, word)} & NAMES.keys()


def spoken_of(node: ast.expr) -> set[str]:
    """The kinds of which an expression such as `config.aggregation.name` holds a name."""
    if isinstance(node, ast.Attribute):
        if node.attr != "name":
            return kinds_of(node.attr)
        above = node.value
        word = getattr(above, "attr", getattr(above, "id", ""))
        return kinds_of(word)
    if isinstance(node, ast.Name):
        return kinds_of(node.id) or kinds_of(node.id.removesuffix("_name"))
    word = ""
    if isinstance(node, ast.Call):  # method_of(run)
        word = getattr(node.func, "attr", getattr(node.func, "id", ""))
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        word = str(node.slice.value).rpartition(".")[2]
    return kinds_of(word.removesuffix("_of"))


def texts(*nodes: ast.expr | None) -> Iterator[str]:
    """The texts in expressions and in collections of them."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            yield from texts(*node.elts)


def of_kinds(kinds: set[str], *nodes: ast.expr | None) -> list[str]:
    """Which of the texts are names of components of these kinds."""
    return [text for text in texts(*nodes) if any(text in NAMES[k] for k in kinds)]


def branches(tree: ast.AST) -> Iterator[str]:
    """Names that something is compared with, and classes that something is tested for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            kinds = set[str]().union(*map(spoken_of, sides))
            yield from of_kinds(kinds, *sides)
        elif isinstance(node, ast.Match):
            kinds = spoken_of(node.subject)
            values = (each for each in ast.walk(node) if isinstance(each, ast.MatchValue))
            yield from of_kinds(kinds, *(each.value for each in values))
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
            ids = {each.id for each in ast.walk(node.args[1]) if isinstance(each, ast.Name)}
            yield from (f"isinstance {each}" for each in sorted(ids & CLASSES.keys()))


def tables(tree: ast.AST) -> Iterator[str]:
    """Names in a collection that has several of one kind, or one value for each."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            found = {*texts(*node.keys)}
        elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            found = {*texts(node)}
        else:
            continue
        for names in NAMES.values():
            if len(found & names) > 1:
                yield from sorted(found & names)


def given(tree: ast.AST) -> Iterator[str]:
    """Names that a setting, a field or an argument gets which holds a component's."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign):
            yield from of_kinds(spoken_of(node.target), node.value)
        elif isinstance(node, ast.Assign):
            kinds = set[str]().union(*map(spoken_of, node.targets))
            yield from of_kinds(kinds, node.value)
        elif isinstance(node, ast.keyword):
            yield from of_kinds(kinds_of(node.arg or ""), node.value)
        elif isinstance(node, ast.Call):
            kinds = {*texts(*node.args[:1])} & NAMES.keys()
            yield from of_kinds(kinds, *node.args[1:])
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                words = {*texts(key)}
                kinds = set(NAMES) if "name" in words else kinds_of("".join(words))
                yield from of_kinds(kinds, value)


def distinctive(tree: ast.AST) -> Iterator[str]:
    """Names in code that mean a component wherever they stand."""
    prose = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    exported = {
        id(each)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and any(getattr(target, "id", "") == "__all__" for target in node.targets)
        for each in ast.walk(node.value)
    }
    known = set[str]().union(*NAMES.values()) - ORDINARY
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in prose | exported:
            yield from (text for text in texts(node) if text in known)


def named(module: str, source: str) -> set[str]:
    """The components of other files that a module knows by name."""
    tree = ast.parse(source)
    rules = (branches, tables, given, distinctive)
    found = {each for rule in rules for each in rule(tree)}
    return {each for each in found if not is_own(module, each)}


def is_own(module: str, found: str) -> bool:
    """Whether a file may know this: it is the component's, or there is a reason."""
    own_class = CLASSES.get(found.removeprefix("isinstance ")) == module
    by_class = module == RULES and found.startswith("isinstance ")
    return own_class or by_class or (module, found) in OWN | ALLOWED


def modules(package: str) -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if name != TABLE:
            yield name, path.read_text(encoding="utf-8")


def test_the_library_knows_no_component_by_its_name():
    found = {(m, name) for m, source in modules("covey") for name in named(m, source)}
    assert found == set()


def test_the_papers_pass_names_and_do_not_branch_on_them():
    for name, source in modules("covey_papers"):
        found = {*branches(ast.parse(source))}
        assert {each for each in found if not is_own(name, each)} == set(), name


def test_no_template_knows_one():
    known = set[str]().union(*NAMES.values()) - ORDINARY
    for path in (ROOT / "covey").rglob("*.html"):
        texts_in = re.findall(r"""["']([\w-]+)["']""", path.read_text(encoding="utf-8"))
        assert known.isdisjoint(texts_in), path


def test_what_is_allowed_is_there():
    sources = dict(modules("covey"))
    for module, found in ALLOWED:
        assert found in {*branches(ast.parse(sources[module]))}


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("if config.aggregation.name == 'mean': pass", "mean"),
        ("x = 'none' if method_of(run) == 'local' else 'loss'", "local"),
        ("if selection in ('priced', 'loss'): pass", "loss"),
        ("if of['method.selection'] != 'threshold': pass", "threshold"),
        ("match config.data.name:\n    case 'digits': pass", "digits"),
        ("isinstance(x, (Ifca, int))", "isinstance Ifca"),
        ("UNUSED = {'local': 1, 'fedavg': 2}", "local"),
        ("Method = Literal['mean', 'median']", "median"),
        ("selection: str = 'loss'", "loss"),
        ("selection_name: str = 'loss'", "loss"),
        ("find('aggregation', 'mean', 'aggregation.name')", "mean"),
        ("slot('engine', 'auto')", "auto"),
        ("Config(method={'name': 'local'})", "local"),
        ("x = f('anonymity-sets')", "anonymity-sets"),
        ("x = f('isolated')", "isolated"),
    ],
)
def test_a_name_is_found(source: str, name: str):
    assert name in named("covey.somewhere", source)


@pytest.mark.parametrize(
    "source",
    [
        "'''fedavg'''",
        "x = row['mean']",
        "noise = 'none'",
        "if basis == 'none': pass",
        "if config.distance == 'cosine': pass",
        "Unit = Literal['client', 'record']",
        "x = {'mean': 1, 'deviation': 2}",
        "streams.at('threshold', name)",
        "raise ValueError('use fedavg')",
    ],
)
def test_an_ordinary_word_is_none(source: str):
    assert named("covey.somewhere", source) == set()
