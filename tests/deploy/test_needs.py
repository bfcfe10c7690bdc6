"""Settings that need more nodes than a federation has are refused before anything is started."""

import tomllib
from pathlib import Path

import pytest
import tomli_w

from covey import Config, ConfigError
from covey.settings.needs import check_enough
from covey_flower.deployment import DeploymentPlan, write_federation
from covey_flower.folder_check import check
from deploy.conftest import NOW

pytestmark = pytest.mark.usefixtures("programs")

PLAIN = "[model]\nname = 'linear'\n[risk]\nname = 'none'\n"
FEDAVG = PLAIN + "[method]\nname = 'fedavg'\n"
MASKED = FEDAVG + "[aggregation]\nname = 'mean'\n[privacy]\nsecure_sums = true\n"
IFCA = PLAIN + "[method]\nname = 'ifca'\n"
SHARES = "noise_model = 'distributed'\nclient_clip = 1.0\nclient_noise = 1.0\ncolluders = 1\n"
NEEDS = {
    "sums under masks": (MASKED + "min_cohort = 5\n", "privacy.min_cohort = 5", 5),
    "shares of noise": (MASKED + SHARES + "min_cohort = 6\n", "privacy.min_cohort = 6", 6),
    "anonymity sets": (
        FEDAVG + "[aggregation]\nname = 'anonymity-sets'\nmin_anonymity = 4\n"
        "deniability_threshold = 2\n",
        *("aggregation.min_anonymity = 4", 4),
    ),
    "newcomers": (IFCA + "max_newcomers = 0.2\n", "method.max_newcomers = 0.2", 6),
    "outliers": (FEDAVG + "[aggregation]\nname = 'krum'\n", "aggregation.name = 'krum'", 5),
    "trimmed": (
        FEDAVG + "[aggregation]\nname = 'trimmed-mean'\n",
        *("aggregation.name = 'trimmed-mean'", 3),
    ),
}


def federated(tmp_path: Path, text: str, count: int) -> Path:
    config = tmp_path / "config.toml"
    config.write_text(text)
    plan = DeploymentPlan(tuple(f"node-{i}" for i in range(count)))
    return write_federation(config, tmp_path / f"fed-{count}", plan, NOW)


@pytest.mark.parametrize(("text", "setting", "needed"), NEEDS.values(), ids=NEEDS)
def test_less_than_the_settings_need_is_refused_by_init_and_by_both_checks(
    tmp_path, text, setting, needed
):
    said = f"found {needed - 1} ({setting} needs {needed})"
    with pytest.raises(ConfigError, match="as many nodes as the settings need") as refused:
        federated(tmp_path, text, needed - 1)
    assert said in str(refused.value)
    assert not (tmp_path / f"fed-{needed - 1}").exists()
    enough, fewer = (federated(tmp_path, each, needed - i) for i, each in enumerate((text, FEDAVG)))
    for place in (Path(), Path("nodes") / "node-1"):
        of_settings = [each for each in check(enough / place, NOW) if each.about == "covey.toml"]
        assert [each.level for each in of_settings] == ["ok"]
        (fewer / place / "covey.toml").write_bytes((enough / place / "covey.toml").read_bytes())
        (found,) = [each for each in check(fewer / place, NOW) if each.about == "covey.toml"]
        assert (found.level, said in found.detail) == ("error", True)


def test_a_nodes_own_minimum_counts_as_well(tmp_path):
    node = federated(tmp_path, MASKED + "min_cohort = 3\n", 3) / "nodes" / "node-0"
    own = tomllib.loads((node / "node.toml").read_text())
    (node / "node.toml").write_text(tomli_w.dumps({**own, "min_cohort": 4}))
    (found,) = [each for each in check(node, NOW) if each.about == "covey.toml"]
    assert "privacy.min_cohort = 4 needs 4" in found.detail


@pytest.mark.parametrize("count", [2, 3, 4, 9])
def test_the_usual_bound_on_newcomers_is_one_for_few_nodes(tmp_path, count):
    folder = federated(tmp_path, IFCA, count)
    share = tomllib.loads((folder / "covey.toml").read_text())["method"]["max_newcomers"]
    assert share == max(0.25, 1 / (count - 1))


@pytest.mark.parametrize("name", ["sums under masks", "anonymity sets", "outliers"])
def test_a_simulation_is_held_to_the_same(name):
    text, setting, needed = NEEDS[name]
    config = Config.of(tomllib.loads(text))
    check_enough(config, needed)
    with pytest.raises(ConfigError, match=f"as many clients as .*{setting}"):
        check_enough(config, needed - 1)
