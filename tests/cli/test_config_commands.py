"""`covey config`: check tells all, schema describes all, init writes what check accepts."""

import json
import tomllib

from covey import Config
from covey.settings.reference import settings

WRONG = """
rounds = "10"
[train]
lerning_rate = 0.1
[method]
name = "ifca_mir"
momentum = nan
"""


def test_check_tells_every_mistake_of_a_file_and_of_what_is_set(covey, tmp_path):
    (tmp_path / "wrong.toml").write_text(WRONG, encoding="utf-8")
    words = ("config", "check", "wrong.toml", "--set", "seed=-1")
    code, out, err = covey(*words)
    assert (code, out) == (2, "")
    assert "5 mistakes" in err
    for part in ("found '10'", "train.learning_rate", "'ifca-mir'", "seed must be "):
        assert part in err
    assert [each.name for each in tmp_path.iterdir()] == ["wrong.toml"]
    code, out, _ = covey(*words, "--json")
    told = json.loads(out)
    assert (code, told["valid"], told["unused_settings"]) == (2, False, None)
    found = {each["key"]: each for each in told["problems"]}
    assert found["rounds"]["value"] == "10"
    assert found["rounds"]["expected"] == "an integer greater than 0"
    assert found["train.lerning_rate"]["did_you_mean"] == "train.learning_rate"
    assert found["method.momentum"]["value"] == "nan"  # which JSON cannot say


def test_what_init_writes_is_every_default_with_what_it_means(answer, covey, tmp_path):
    assert covey("config", "init", "--out", "new.toml")[0] == 0
    told = answer("config", "check", "new.toml")
    assert (told["valid"], told["unused_settings"]) == (True, [])
    written = tomllib.loads((tmp_path / "new.toml").read_text(encoding="utf-8"))
    assert Config.of(written) == Config()
    assert written == {
        name: by_name(each) for name, each in Config().model_dump(mode="json").items()
    }
    code, out, _ = covey("config", "init")
    assert (code, tomllib.loads(out)) == (0, written)
    lines = out.splitlines()
    assert len(lines) <= 150  # three screens
    assert all(len(line) <= 100 for line in lines)
    assert all("  # " in line for line in lines if " = " in line)
    assert answer("config", "init")["text"] == out


def by_name(section):
    """A section in which components are their names."""
    if not isinstance(section, dict):
        return section
    return {key: each["name"] if isinstance(each, dict) else each for key, each in section.items()}


def test_the_schema_describes_every_setting_with_its_default(answer):
    told = answer("config", "schema")
    described = {
        key: each
        for name, given in told["properties"].items()
        for key, each in settings_in(name, given, told["$defs"])
    }
    assert set(described) == {each.key for each in settings()}
    for each in settings():
        assert each.description.endswith(described[each.key]["description"])
        assert described[each.key].get("default") == each.default


def settings_in(name, given, sections):
    """Yield every setting in a part of the schema; a component's name is the component."""
    section = sections[given["$ref"].split("/")[-1]] if "$ref" in given else given
    tables = [each for each in (section, *section.get("anyOf", ())) if "properties" in each]
    if not tables:
        yield name, given
        return
    assert section["description"]
    for key, each in tables[0]["properties"].items():
        inside = name if key == "name" and "." in name else f"{name}.{key}"
        yield from settings_in(inside, each, sections)
