"""The program of docs/audit_model.md runs as it stands."""

import re
from pathlib import Path

from covey import Streams

PAGE = Path(__file__).parents[2] / "docs" / "audit_model.md"


def test_the_program_of_the_page_makes_a_page(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    with Streams(0).lent_to_torch():
        exec(compile(program, PAGE.name, "exec"), {})  # noqa: S102 - our own
    assert "Members can be distinguished from non-members" in capsys.readouterr().out
    assert "<h1>Audit of a model" in Path("audit.html").read_text()
