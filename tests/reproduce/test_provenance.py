"""Which code a result is said to come from."""

import subprocess

from covey_papers.reproduce import record as provenance


def head(folder):
    words = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_a_repository_that_covey_is_only_installed_in_is_not_its_source(tmp_path, monkeypatch):
    inside = tmp_path / "site-packages" / "covey_papers" / "reproduce"
    inside.mkdir(parents=True)
    copy = inside / "provenance.py"
    copy.touch()
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init"], [*author, "commit", "--allow-empty", "-m", "theirs"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    assert head(tmp_path)
    monkeypatch.setattr(provenance, "__file__", str(copy))
    assert provenance.commit.__wrapped__().startswith("covey ")
