"""`covey dossier`, and `covey verify` of one."""


def test_one_is_written_and_verified(covey, copy_of_ran, tmp_path):
    out = tmp_path / "mine"
    assert covey("dossier", copy_of_ran, "--out", out)[0] == 0
    code, told, _ = covey("verify", out, "--ledger", copy_of_ran)
    assert code == 0
    assert "every figure follows from events 1 to" in told
    (out / "dossier.html").write_text("safe")
    assert covey("verify", out)[0] == 1


def test_by_default_it_lies_in_the_runs_folder(answer, copy_of_ran):
    told = answer("dossier", copy_of_ran)
    assert answer("verify", f"{told['dossier']}/dossier.json")["valid"]
