"""`covey ledger doctor` for people and for programs."""

import json


def test_what_is_damaged_is_said_and_mended_on_request(covey, copy_of_ran):
    folder = copy_of_ran
    state = max((folder / "checkpoints").iterdir())
    whole = state.read_bytes()
    code, out, _ = covey("ledger", "doctor", folder)
    assert (code, out.strip()) == (0, "nothing is damaged")
    state.unlink()
    code, out, _ = covey("ledger", "doctor", folder)
    assert code == 1
    assert f"DAMAGED   the state after round 2: {state}" in out
    assert "played again" in out
    code, out, _ = covey("ledger", "doctor", folder, "--json")
    told = json.loads(out)
    assert code == 1
    assert told["damaged"][0]["path"] == str(state)
    assert told["damaged"][0]["repairable"]
    code, out, _ = covey("ledger", "doctor", folder, "--repair")
    assert code == 0
    assert out.startswith("repaired  the state after round 2")
    assert state.read_bytes() == whole
