"""`covey config`: check tells all, schema describes all, init writes what check accepts."""

import json
import tomllib

from covey import Config
from covey.config.problems import settings

WRONG = """
rounds = "10"
[train]
lerning_rate = 0.1
[method]
name = "ifca_mir"
"""


def test_check_tells_every_mistake_of_a_file_and_of_what_is_set(covey, tmp_path):
    (tmp_path / "wrong.toml").write_text(WRONG, encoding="utf-8")
    code, out, err = covey("config", "check", "wrong.toml", "--set", "seed=-1")
    assert (code, out) == (2, "")
    assert "4 mistakes" in err
    for part in ("rounds = '10'", "train.learning_rate", "'ifca-mir'", "seed = -1"):
        assert part in err
    assert [each.name for each in tmp_path.iterdir()] == ["wrong.toml"]


def test_check_answers_with_one_object_and_exit_code_2(covey, tmp_path):
    (tmp_path / "wrong.toml").write_text(WRONG + "momentum = nan\n", encoding="utf-8")
    code, out, _ = covey("config", "check", "wrong.toml", "--json")
    told = json.loads(out)
    assert (code, told["valid"], told["unused_settings"]) == (2, False, None)
    found = {each["key"]: each for each in told["problems"]}
    assert found["rounds"]["value"] == "10"
    assert found["rounds"]["expected"] == "an integer greater than 0"
    assert found["train.lerning_rate"]["did_you_mean"] == "train.learning_rate"
    assert found["method.name"]["did_you_mean"] == "ifca-mir"
    assert found["method.momentum"]["value"] == "nan"  # which JSON cannot say


def test_check_tells_what_does_nothing_in_a_file_without_mistakes(answer, covey, tmp_path):
    (tmp_path / "fine.toml").write_text("[merge]\nradius = 2.0\n", encoding="utf-8")
    told = answer("config", "check", "fine.toml")
    assert (told["valid"], told["problems"]) == (True, [])
    assert [each["key"] for each in told["unused_settings"]] == ["merge.radius"]
    code, out, _ = covey("config", "check", "fine.toml")
    assert code == 0
    assert "merge.radius = 2.0 does nothing" in out


def test_what_init_writes_is_every_default_and_has_no_mistakes(answer, covey, tmp_path):
    assert covey("config", "init", "--out", "new.toml")[0] == 0
    told = answer("config", "check", "new.toml")
    assert (told["valid"], told["unused_settings"]) == (True, [])
    written = tomllib.loads((tmp_path / "new.toml").read_text(encoding="utf-8"))
    assert Config.of(written) == Config()
    assert written == Config().model_dump(mode="json")
    code, out, _ = covey("config", "init")
    assert code == 0
    assert tomllib.loads(out) == written


def test_init_says_above_each_setting_what_it_means_and_may_be(covey):
    _, out, _ = covey("config", "init")
    joined = " ".join(line.removeprefix("# ") for line in out.splitlines())
    for each in settings():
        assert f"{each.description} Allowed: {each.allowed}. {each.name} = " in joined


def test_init_overwrites_nothing(covey, tmp_path):
    (tmp_path / "mine.toml").write_text("rounds = 3\n", encoding="utf-8")
    code, _, err = covey("config", "init", "--out", "mine.toml")
    assert code == 2
    assert "Give another" in err
    assert (tmp_path / "mine.toml").read_text(encoding="utf-8") == "rounds = 3\n"
    assert covey("config", "init", "--out", "no/folder.toml")[0] == 2


def test_the_schema_describes_every_setting_with_its_default(answer):
    told = answer("config", "schema")
    described = {}
    for name, given in told["properties"].items():
        if "$ref" not in given:
            described[name] = given
            continue
        inner = told["$defs"][given["$ref"].split("/")[-1]]
        assert inner["description"]
        described |= {f"{name}.{key}": each for key, each in inner["properties"].items()}
    assert set(described) == {each.key for each in settings()}
    for each in settings():
        assert described[each.key]["description"] == each.description != ""
        assert described[each.key]["default"] == each.default
    assert described["train.learning_rate"]["exclusiveMinimum"] == 0
    assert "ifca-mir" in described["method.name"]["anyOf"][0]["enum"]
