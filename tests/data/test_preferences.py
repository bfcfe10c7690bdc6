"""What clients accept, as a file states it."""

import pytest

from covey import ConfigError
from covey.data.examples import Preference
from covey.data.population import read_preferences


def test_csv_and_toml_say_the_same(tmp_path):
    table = tmp_path / "who.csv"
    table.write_text("name, risk_threshold, risk_weight\na, 0.6, 0.25\nb, 0.8,\n")
    tree = tmp_path / "who.toml"
    tree.write_text("a = {risk_threshold = 0.6, risk_weight = 0.25}\n[b]\nrisk_threshold = 0.8")
    expected = {"a": Preference(0.25, 0.6), "b": Preference(0.0, 0.8)}
    assert read_preferences(table) == read_preferences(tree) == expected


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("name,risk_threshold\na,high\n", "give a a risk_threshold"),
        ("name,risk_threshold\na,1.5\n", r"1\.5 is not in \[0, 1\]"),
        ("name,risk_weight\na,0.5\n", "risk_threshold"),
        ("who,risk_threshold\na,0.5\n", "no column is name"),
        ("name,risk_threshold\n", "a table per client, found no client in"),
    ],
)
def test_bad_files_are_refused_with_the_client_named(tmp_path, content, said):
    path = tmp_path / "who.csv"
    path.write_text(content)
    with pytest.raises(ConfigError, match=said):
        read_preferences(path)
    with pytest.raises(ConfigError, match=r"absent\.csv"):
        read_preferences(tmp_path / "absent.csv")
