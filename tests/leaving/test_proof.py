"""Proofs: what an answer says, and what none can say, whatever a ledger holds."""

import html
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey import LedgerError
from covey.base.guarantee import Guaranteed, NoGuarantee, Term
from covey.base.signature import KeyRecord, SigningKey, document_json, sign
from covey.leaving.deniability import refutation_success, representative_probability
from covey.leaving.facts import (
    AttackFigure,
    CopyFact,
    Facts,
    HeldRound,
    Measurement,
    ValueOrReason,
    contradictions,
)
from covey.leaving.handover import subject_mark
from covey.leaving.plan import Influence
from covey.leaving.proof import (
    REASONS,
    check_proof,
    proof_page,
    read_proof,
    sentences,
    signed_proof,
)
from covey.leaving.verification import verify

KEY = SigningKey.from_private_bytes(bytes(32))
OTHER = SigningKey.from_private_bytes(bytes([1] * 32))
TRUSTED = [KeyRecord(KEY.public_key())]
SALT = bytes(range(16))
BEFORE, AFTER = "a" * 64, "b" * 64
HEAD = "c" * 64

NEVER_SAID = (
    "gdpr art. 17 compliant",
    "data erased",
    "forgotten",
    "proof of unlearning",
    "client did not participate",
)
HOLDS = Guaranteed(
    epsilon=3.2,
    delta=1e-5,
    unit="client",
    relation=Term.CLIENT_REPLACED.name,
    adversary=Term.SEES_MODELS.name,
    covers=(Term.EVERY_MODEL.name,),
    does_not_cover=tuple(Term.__members__),
    holds_if=(Term.ONE_NAME.name,),
    accountant="PLD",
    noise_multiplier=4.0,
)

DENIED = Facts(
    covey_version="0.2.0",
    request="0123456789abcdef",
    run="fedcba9876543210",
    requested="2025-01-02T03:04:05Z",
    answered="2025-01-02T03:04:06Z",
    subject=subject_mark("client-00017", SALT),
    answer="deny",
    ledger_head=HEAD,
    ledger_events=2,
    model_before=BEFORE,
    model_after=BEFORE,
    rounds=(
        HeldRound(0, 1, 3, ValueOrReason(0.5, "")),
        HeldRound(4, 1, 2, ValueOrReason(None, "no-distances")),
    ),
    deniability_threshold=2,
    min_anonymity=3,
    max_distance=None,
    distance=None,
    first_round=0,
    first_affected_round=None,
    first_replayed_round=None,
    rounds_replayed=0,
    # its sets had 4 and 2 members: 1 - (1 - 1/4) (1 - 1/2) = 0.625
    representative_probability=ValueOrReason(representative_probability([4, 2]), ""),
    refutation=ValueOrReason(refutation_success(0.5, 0.0), ""),
    touched=(
        Influence(0, "cluster size", 1, 12),
        Influence(2, "risk", 1, 0.61),
        Influence(3, "cluster left", 0),
    ),
    secrets="seeded",
    guarantee=ValueOrReason(None, "NOT_ACCOUNTED"),
    raw_updates_deleted=ValueOrReason(None, "none-stored"),
    superseded_deleted={},
    measured=ValueOrReason(None, "too-few"),
    basis="none",
    copies=(),
    receipt=None,
    consistency=(),
    tree_root="d" * 64,
    inclusion=(),
    replayed=None,
    sealed_record_kept=False,
    subtracted=(),
    own_parts=(),
)
FIGURE = AttackFigure(0, 0.7, 0.6, 0.8)
MEASURED = ValueOrReason(Measurement(FIGURE, replace(FIGURE, mia_accuracy=0.65)), "")
ROLLED_BACK = replace(
    DENIED,
    answer="roll_back",
    model_after=AFTER,
    first_affected_round=4,
    first_replayed_round=4,
    rounds_replayed=6,
    replayed="recorded",
    secrets="os",
    superseded_deleted={"pages": 1, "states": 3},
    raw_updates_deleted=ValueOrReason(value=True, reason=""),
    refutation=ValueOrReason(None, "noise-unknown"),
    guarantee=ValueOrReason(HOLDS, ""),
)
RETRAINED = replace(
    ROLLED_BACK, answer="retrain", first_replayed_round=0, rounds_replayed=10, replayed="anew"
)
CALIBRATED = replace(
    RETRAINED,
    answer="calibrate",
    replayed="calibrated",
    raw_updates_deleted=ValueOrReason(value=False, reason=""),
    measured=MEASURED,
)
EVERY = {"deny": DENIED, "roll_back": ROLLED_BACK, "retrain": RETRAINED}
EVERY |= {"calibrate": CALIBRATED}

every_answer = pytest.mark.parametrize("facts", EVERY.values(), ids=EVERY)

counts = st.integers(0, 99)
figures = st.floats(0, 1)
hashes = st.binary(min_size=32, max_size=32).map(bytes.hex)
moments = st.datetimes().map(lambda when: f"{when.isoformat(timespec='milliseconds')}+00:00")


def known(values: st.SearchStrategy[Any], *reasons: str) -> st.SearchStrategy[Any]:
    return st.builds(ValueOrReason, values, st.just("")) | st.builds(
        ValueOrReason, st.none(), st.sampled_from(reasons)
    )


touches = st.builds(
    Influence,
    counts,
    st.sampled_from(["cluster size", "risk", "price", "cluster left"]),
    counts,
    st.none() | counts | figures,
)
copies = st.builds(
    CopyFact,
    what=st.sampled_from(["model", "report"]),
    sha256=st.none() | hashes,
    path_sha256=hashes,
    recipient=st.none() | st.text(max_size=9),
    fate=st.sampled_from(["deleted", "unchanged", "outside", "missing"]),
    notify=st.booleans(),
)
# plain arguments: beartype looks at random items, which no strategy may do
any_facts = st.fixed_dictionaries(
    {
        "requested": moments,
        "answered": moments,
        "answer": st.sampled_from(["deny", "stop", "roll_back", "retrain", "calibrate"]),
        "model_after": st.sampled_from([BEFORE, AFTER]),
        "rounds": st.lists(
            st.builds(HeldRound, counts, counts, counts, known(figures, "no-distances")), max_size=3
        ).map(tuple),
        "deniability_threshold": st.none() | counts,
        "min_anonymity": st.none() | counts,
        "max_distance": st.none() | figures,
        "distance": st.sampled_from([None, "l2", "cosine"]),
        "first_round": st.none() | counts,
        "first_affected_round": st.none() | counts,
        "first_replayed_round": st.none() | counts,
        "rounds_replayed": counts,
        "representative_probability": known(figures, "not-hidden"),
        "refutation": known(figures, "no-set", "noise-unknown"),
        "touched": st.lists(touches, max_size=3).map(tuple),
        "secrets": st.sampled_from(["seeded", "os"]),
        "guarantee": known(st.just(HOLDS), *NoGuarantee.__members__),
        "raw_updates_deleted": known(st.booleans(), "none-stored"),
        "superseded_deleted": st.dictionaries(
            st.sampled_from(["pages", "states", "updates"]), counts
        ),
        "measured": known(st.just(MEASURED.value), "too-few", "gone", "diverged-after"),
        "copies": st.lists(copies, max_size=3).map(tuple),
    }
)


def signed(facts: Facts, key: SigningKey = KEY) -> dict[str, Any]:
    return signed_proof(key, facts)


def file_of(document: dict[str, Any]) -> bytes:
    return document_json(document).encode()


def page_of(facts: Facts) -> str:
    return proof_page(read_proof(file_of(signed(facts))))


def failed(written: bytes, trusted: Any = TRUSTED) -> list[str]:
    return [c.name for c in check_proof(written, trusted)[1] if c.ok is not True]


@given(any_facts)
def test_what_is_written_reads_back_as_it_was(values: dict[str, Any]):
    facts = replace(DENIED, **values)
    document = signed(facts)
    written = file_of(document)
    assert json.loads(written) == document
    proof, verification = check_proof(written, TRUSTED)
    assert proof is not None
    assert all(getattr(proof, name) == getattr(facts, name) for name in values)
    checks = {check.name: check.ok for check in verification}
    assert all(checks[name] for name in ("format", "signature", "trust"))
    # its page says in words, without codes, nothing that cannot be known
    shown = page_of(replace(facts, copies=()))
    assert not [code for code in REASONS if {*"-_"} & {*code} and code in shown]
    assert not [phrase for phrase in NEVER_SAID if phrase in shown.lower()]


@given(st.data())
def test_no_bit_of_any_file_can_be_flipped(data: st.DataObject):
    written = file_of(signed(data.draw(st.sampled_from(list(EVERY.values())))))
    assert failed(written) == []
    at = data.draw(st.integers(0, len(written) - 1))
    flipped = bytes([written[at] ^ (1 << data.draw(st.integers(0, 7)))])
    assert failed(written[:at] + flipped + written[at + 1 :])


def test_another_layout_of_the_same_values_is_not_the_file():
    document = signed(DENIED)
    assert failed(json.dumps(document, sort_keys=True).encode()) == ["format"]
    assert failed(file_of(document) + b"\n") == ["format"]


@pytest.mark.parametrize("written", [b"", b"[]", b'{"a": NaN}', b"[" * 100_000, b"9" * 5000])
def test_malformed_json_fails_and_does_not_raise(written: bytes):
    assert failed(written) == ["format"]


def test_a_field_of_any_other_kind_or_none_fails_and_does_not_raise():
    document = signed(DENIED)
    for name, right in document.items():
        for value in (None, -1, "x", "\ud800", [], {"value": None}):
            if value != right:
                assert failed(file_of({**document, name: value})), (name, value)
        assert failed(file_of({k: v for k, v in document.items() if k != name})) == ["format"]


@pytest.mark.parametrize(
    "more", [{"added": 1}, {"format": "other"}, {"\x1b[2J": 1}, {"version": 6}, {"version": None}]
)
def test_an_unknown_field_or_format_is_refused_and_nothing_that_a_terminal_obeys_is_said(more):
    _, (check,) = check_proof(file_of(sign(KEY, {**signed(DENIED), **more})))
    assert (check.name, check.ok) == ("format", False)
    assert ("must be of format 11, found " in check.detail) == ("version" in more)
    assert "\x1b" not in check.detail


def test_a_strangers_proof_is_valid_and_not_trusted():
    written = file_of(signed(DENIED, OTHER))
    assert failed(written) == ["trust"]
    assert [(c.name, c.ok) for c in check_proof(written)[1] if not c.ok] == [("trust", None)]
    assert failed(written, [*TRUSTED, KeyRecord(OTHER.public_key())]) == []


def test_the_mark_is_hmac_sha256():
    # RFC 4231, test case 2
    assert subject_mark("what do ya want for nothing?", b"Jefe") == (
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    )


@every_answer
def test_no_name_no_salt_and_no_other_member_occurs(facts: Facts):
    written = document_json(signed(facts)) + page_of(facts)
    assert "client-00017" not in written
    assert SALT.hex() not in written
    held = {name for facts_of_round in signed(facts)["rounds"] for name in facts_of_round}
    assert held == {"round_index", "cluster", "size_left", "diameter"}


def test_what_is_no_code_is_not_signed():
    for reason in ("experts certify it", "data erased", "<script>alert(1)</script>"):
        with pytest.raises(LedgerError, match="codes and numbers alone, found that 'guarantee'"):
            signed(replace(DENIED, guarantee=ValueOrReason(None, reason)))


def test_unknown_is_null_with_a_reason_and_never_nan():
    assert signed(DENIED)["guarantee"] == {"value": None, "reason": "NOT_ACCOUNTED"}
    with pytest.raises(ValueError, match="a value or a reason"):
        ValueOrReason(None, "")
    with pytest.raises(LedgerError, match="only what JSON can say"):
        signed(replace(DENIED, max_distance=float("inf")))


def test_refuting_a_denial_by_hand():
    assert refutation_success(1.0, 0.0) == 1
    assert refutation_success(0.0, 1.0) == 0.5
    # Phi(1) = 0.841345: a distance of twice the noise
    assert refutation_success(2.0, 1.0) == pytest.approx(0.841345, abs=1e-6)


WEAKER = ("not an erasure", "not equivalent to retraining")
NOTHING = replace(RETRAINED, first_replayed_round=None, rounds_replayed=0)


@pytest.mark.parametrize(
    ("facts", "said", "never"),
    [
        (DENIED, (*WEAKER, "not changed", "recomputable from the seed"), "first replayed round"),
        (DENIED, ("right one with probability 100%", "62.5%"), "sealed record"),
        (replace(DENIED, max_distance=0.5, distance="l2"), ("at least 2 remaining",), "cosine"),
        (
            replace(DENIED, max_distance=0.5, distance="cosine"),
            ("within a cosine distance of 0.5 of the", "bounds no L2 distance"),
            "within the diameter",
        ),
        (replace(DENIED, sealed_record_kept=True), ("name and salt together open",), "retrained"),
        (ROLLED_BACK, (*WEAKER, "from just before round 5.", "from 1 to 4, before"), "bit for bit"),
        (replace(ROLLED_BACK, replayed="anew"), WEAKER, "kept the clusters that they chose"),
        (replace(ROLLED_BACK, first_round=4), ("No round before them includes",), "still includes"),
        (CALIBRATED, (*WEAKER, "approximate", "Another attack may do better"), "bit for bit"),
        (RETRAINED, ("no one can repeat it bit for bit",), "not equivalent"),
        (replace(RETRAINED, secrets="seeded"), ("bit for bit only on the same",), "not equivalent"),
        (NOTHING, ("so none was replayed",), "bit for bit"),
        (DENIED, ("In one round, an attacker with", "over several rounds"), "retrained"),
    ],
)
def test_what_an_answer_has_to_say_and_must_not(facts: Facts, said: tuple[str, ...], never: str):
    text = " ".join(sentence for part in sentences(facts).values() for sentence in part)
    assert not [sentence for sentence in (*said, facts.model_after) if sentence not in text]
    assert "Nothing is claimed about membership inference" in text
    assert never not in text


@every_answer
def test_the_page_shows_every_limit_before_any_figure(facts: Facts):
    shown = html.unescape(page_of(facts))
    assert shown.index(sentences(facts)["summary"][1]) < shown.index("<h2>"), "one sentence first"
    figures_at = shown.index("<details>")
    assert not re.search("[0-9a-f]{64}", shown[:figures_at]), "hashes are folded away"
    assert facts.model_after in shown
    assert all(0 < shown.find(sentence) < figures_at for sentence in sentences(facts)["limits"])
    assert signed(facts)["signature"]["fingerprint"] in shown
    assert not re.search(r"https?:|<script|<link|<img", shown)
    is_known = facts.guarantee.value is not None
    assert all(term.value in shown for term in Term) == is_known  # with what it does not cover


def test_copies_are_counted_and_their_recipients_are_named_as_text_and_once():
    what: dict[str, Any] = {"what": "model", "sha256": None, "path_sha256": "e" * 64}
    deleted = CopyFact(**what, recipient=None, fate="deleted", notify=False)
    outside = replace(deleted, recipient="<script>alert(1)</script>", fate="outside", notify=True)
    copies = (
        deleted,
        outside,
        replace(deleted, fate="missing"),
        replace(deleted, fate="unchanged"),
    )
    facts = replace(RETRAINED, copies=copies)
    assert "2 not deleted, and 1 recipient to notify" in sentences(facts)["summary"][2]
    shown = page_of(facts)
    assert "<script>" not in shown
    assert shown.count("&lt;script&gt;") == 1
    assert failed(file_of(signed(facts))) == []


def test_only_name_and_salt_together_are_the_requester(tmp_path: Path):
    path, name = tmp_path / "proof.json", "client-00017"
    path.write_text(document_json(signed(DENIED)))
    wrong = ((name, bytes(16)), ("client-00018", SALT), (name, SALT[:-1]))
    for mine, salt in ((name, SALT), *wrong):
        verification = verify(path, name_and_salt=(mine, salt.hex()))
        (subject,) = (check for check in verification.checks if check.name == "subject")
        assert subject.ok is ((mine, salt) == (name, SALT))


STOPPED = replace(DENIED, answer="stop", rounds=())
FIRST, SECOND = DENIED.rounds
SMALL = ValueOrReason(0.5, "")
BACKWARDS = ValueOrReason(Measurement(replace(FIGURE, low=0.9), None), "")


@every_answer
def test_what_holds_together_is_no_contradiction(facts: Facts):
    assert contradictions(facts) == []


@pytest.mark.parametrize(
    ("facts", "changed", "wrong"),
    [
        (DENIED, {"answered": "2025-01-02T03:04:04Z"}, "answered"),
        (DENIED, {"model_after": AFTER}, "model_after"),
        (STOPPED, {"model_after": AFTER}, "model_after"),
        (DENIED, {"rounds": (HeldRound(0, 1, 1, SMALL), SECOND)}, "rounds"),
        (DENIED, {"rounds": (FIRST, HeldRound(4, 1, 1, SMALL))}, "rounds"),
        (DENIED, {"rounds": (SECOND, FIRST)}, "rounds"),
        (DENIED, {"rounds": (FIRST, FIRST)}, "rounds"),
        (DENIED, {"first_round": 1}, "first_round"),
        (DENIED, {"first_round": None}, "first_round"),
        (DENIED, {"deniability_threshold": None}, "deniability_threshold"),
        (DENIED, {"rounds_replayed": 1}, "first_replayed_round"),
        (DENIED, {"consistency": ("a" * 64,)}, "consistency"),
        (ROLLED_BACK, {"first_affected_round": 3}, "first_affected_round"),
        (ROLLED_BACK, {"first_affected_round": None}, "first_affected_round"),
        (ROLLED_BACK, {"rounds_replayed": 0}, "rounds_replayed"),
        (ROLLED_BACK, {"replayed": "calibrated"}, "replayed"),
        (RETRAINED, {"replayed": "recorded"}, "replayed"),
        (RETRAINED, {"sealed_record_kept": True}, "sealed_record_kept"),
        (CALIBRATED, {"measured": BACKWARDS}, "measured"),
        (STOPPED, {"superseded_deleted": {"pages": 1}}, "superseded_deleted"),
        (STOPPED, {"raw_updates_deleted": ValueOrReason(value=True, reason="")},
         "raw_updates_deleted"),
    ],
)  # fmt: skip
def test_what_contradicts_the_rest_is_named(facts: Facts, changed: dict[str, Any], wrong: str):
    assert contradictions(replace(facts, **changed)) == [wrong]
