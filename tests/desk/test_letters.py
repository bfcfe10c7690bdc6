"""What letters say, what the register counts as answered, and what a person still has to do."""

import pytest

from covey import ConfigError
from covey_desk import write_packs
from covey_desk.lifecycle import add_request, close_request, correct_request
from covey_desk.register import read_register, register_at
from covey_desk.request import RunOfRequest
from desk.test_answering import go, only
from desk.test_pack import page_of, text_of
from desk.tiny import ONE, TWO, load


def request(register, number="1"):
    with read_register(register) as held:
        return held.request(number)


@pytest.fixture
def sets(runs):
    """The run with anonymity sets, which can deny."""
    only(runs, "sets")
    return runs


def denied(runs, name, answer="deny") -> str:
    """Let a client leave by this answer, and return the salt, which only the client has then."""
    run = load(runs / "sets")
    run.forget(name, answer)
    (kept,) = run.unacknowledged
    run.acknowledge(kept.request)
    return kept.salt


@pytest.mark.parametrize("others", [(), ("retrain",), ("roll_back",)])
def test_an_erasure_after_a_denial_is_not_answered_and_the_letter_says_so(register, sets, others):
    denied(sets, ONE)
    for answer in others:
        denied(sets, TWO, answer)
    add_request(register, [sets], [ONE], "erasure")
    assert go(register, sets) == ()
    assert request(register).state == "denied"
    assert [each.ended for each in request(register).denied] == ["unclear" if others else "denied"]
    (pack,) = write_packs(register, load=load)
    text = text_of(page_of(pack))
    assert ("may still hold" if others else "model sets still holds") in text
    assert "compute it again without them (GDPR Art. 17)" in text
    with pytest.raises(ConfigError, match="give a reason"):
        close_request(register, [sets], "1", load=load)
    closed = close_request(register, [sets], "1", "the person has no salt", load=load)
    assert closed.state == "closed"


@pytest.mark.parametrize("when", ["added", "corrected"])
def test_a_salt_reopens_what_was_denied(register, sets, when):
    salt = denied(sets, ONE)
    salts = (salt,) if when == "added" else ()
    add_request(register, [sets], [ONE], "erasure", salts=salts)
    if when == "corrected":
        assert go(register, sets) == ()
        correct_request(register, [sets], "1", {"salts": (salt,)})
    assert request(register).waiting == 1
    (done,) = go(register, sets)
    assert (done.answer, request(register).state) == ("retrain", "answered")
    write_packs(register, load=load)
    close_request(register, [sets], "1", load=load)
    for path in register.rglob("*"):
        assert path.is_dir() or salt.encode() not in path.read_bytes()


@pytest.mark.parametrize(
    "answer", ["deny", "stop", "roll_back", "calibrate", "subtract", "retrain"]
)
def test_only_an_exact_answer_ends_an_erasure(register, tmp_path, answer):
    add_request(register, [tmp_path], [ONE], "erasure")
    with register_at(register) as held:
        held.note(RunOfRequest(request="1", person=ONE, run="/one", index=1, answer=answer))
        held.begin("1", "auto")
        exact = answer in ("subtract", "retrain")
        assert held.request("1").state == ("answered" if exact else "denied")


def test_other_requests_of_a_client_that_was_denied_are_answered(register, sets):
    denied(sets, ONE)
    for number, basis in enumerate(("objection", "restriction", "withdrawal", "access"), 1):
        add_request(register, [sets], [ONE], basis)
        go(register, sets, str(number))
        assert request(register, str(number)).state == "answered"
    assert "model sets still holds" in text_of(page_of(write_packs(register, load=load)[-1]))


@pytest.mark.parametrize("salt", ["", "xyz", "ab", "g" * 32])
def test_what_is_no_salt_is_refused(register, sets, salt):
    with pytest.raises(ConfigError, match="hexadecimal"):
        add_request(register, [sets], [ONE], "erasure", salts=(salt,))
    with pytest.raises(ConfigError, match="one client"):
        add_request(register, [sets], [ONE], "access", salts=("a" * 32,))
