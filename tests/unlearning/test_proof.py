import html
import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from covey import LedgerError
from covey.unlearning.facts import (
    AttackFigure,
    CopyFact,
    Facts,
    HeldRound,
    Measurement,
    ValueOrReason,
)
from covey.unlearning.guarantee import Guaranteed, NoGuarantee, Term
from covey.unlearning.participation import refutation_success, representative_probability
from covey.unlearning.plan import Influence
from covey.unlearning.proof import check_proof, proof_json, read_proof, signed_proof, subject_mark
from covey.unlearning.proof_text import REASONS, proof_page, sentences
from covey.unlearning.signature import KeyRecord, SigningKey, sign

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
    asked="2025-01-02T03:04:05Z",
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
    own_sums_kept=False,
    earlier_heads=None,
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
identifiers = st.binary(min_size=8, max_size=8).map(bytes.hex)
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
        "covey_version": st.sampled_from(["0.2.0", "1.0rc1", "2.10.0.dev3"]),
        "request": identifiers,
        "run": identifiers,
        "asked": moments,
        "answered": moments,
        "subject": hashes,
        "answer": st.sampled_from(["deny", "stop", "roll_back", "retrain", "calibrate"]),
        "ledger_head": hashes,
        "ledger_events": st.integers(1, 99),
        "model_before": st.sampled_from([BEFORE, AFTER]),
        "model_after": st.sampled_from([BEFORE, AFTER]),
        "rounds": st.lists(
            st.builds(HeldRound, counts, counts, counts, known(figures, "no-distances")), max_size=3
        ).map(tuple),
        "deniability_threshold": st.none() | counts,
        "min_anonymity": st.none() | counts,
        "max_distance": st.none() | figures,
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
    return proof_json(document).encode()


def page_of(facts: Facts) -> str:
    return proof_page(read_proof(file_of(signed(facts))))


def failed(written: bytes, trusted: Any = TRUSTED) -> list[str]:
    return [c.name for c in check_proof(written, trusted)[1] if c.ok is not True]


@every_answer
def test_a_proof_holds_in_everybodys_hands(facts: Facts):
    _, checks = check_proof(file_of(signed(facts)), TRUSTED)
    assert [(check.name, check.ok) for check in checks] == [
        ("format", True),
        ("signature", True),
        ("trust", True),
        ("key", True),
        ("facts", True),
    ]


@given(any_facts)
def test_what_is_written_reads_back_as_it_was(values: dict[str, Any]):
    facts = replace(DENIED, **values)
    document = signed(facts)
    written = file_of(document)
    assert json.loads(written) == document
    proof, found = check_proof(written, TRUSTED)
    assert proof is not None
    assert all(getattr(proof, name) == getattr(facts, name) for name in values)
    checks = {check.name: check.ok for check in found}
    assert checks["format"]
    assert checks["signature"]
    assert checks["trust"]


@given(any_facts)
def test_equal_facts_give_equal_files(values: dict[str, Any]):
    facts = replace(DENIED, **values)
    assert file_of(signed(facts)) == file_of(signed(replace(facts)))


def test_no_byte_of_a_file_can_be_flipped():
    written = file_of(signed(DENIED))
    for at, byte in enumerate(written):
        flipped = bytes([byte ^ (1 << at % 8)])
        assert failed(written[:at] + flipped + written[at + 1 :]), at


@settings(max_examples=200)
@given(st.data())
def test_no_bit_of_any_file_can_be_flipped(data: st.DataObject):
    written = file_of(signed(data.draw(st.sampled_from(list(EVERY.values())))))
    at = data.draw(st.integers(0, len(written) - 1))
    flipped = bytes([written[at] ^ (1 << data.draw(st.integers(0, 7)))])
    assert failed(written[:at] + flipped + written[at + 1 :])


def test_another_layout_of_the_same_values_is_not_the_file():
    document = signed(DENIED)
    assert failed(json.dumps(document, sort_keys=True).encode()) == ["format"]
    assert failed(file_of(document) + b"\n") == ["format"]


@given(st.binary(max_size=40))
def test_bytes_that_are_no_proof_fail_and_do_not_raise(written: bytes):
    assert failed(written) == ["format"]


@pytest.mark.parametrize(
    "written",
    [b"", b"null", b"[]", b"{}", b'{"a": NaN}', b"[" * 100_000, b"9" * 5000, b"\xff{}"],
    ids=["empty", "null", "list", "object", "nan", "deep", "long", "not ascii"],
)
def test_malformed_json_fails_and_does_not_raise(written: bytes):
    assert failed(written) == ["format"]


WRONG = [None, True, 1.5, -1, "x", "\ud800", [], {}, [None], {"value": None}]


@pytest.mark.parametrize("name", sorted(signed(DENIED)))
def test_a_field_of_any_other_kind_or_none_fails_and_does_not_raise(name: str):
    document = signed(DENIED)
    for value in WRONG:
        if value != document[name]:
            assert failed(file_of({**document, name: value}))
    del document[name]
    assert failed(file_of(document)) == ["format"]


def test_an_unknown_field_and_an_unknown_version_are_not_passed_over():
    document = signed(DENIED)
    for more in ({"added": 1}, {"version": 99}, {"format": "other"}, {"limits": []}):
        assert failed(file_of(sign(KEY, {**document, **more})))[0] == "format"


@pytest.mark.parametrize("found", [6, "7", None, "\x1b[2J" * 99])
def test_a_proof_of_another_format_is_refused_in_one_sentence(found):
    _, (check,) = check_proof(file_of(sign(KEY, {**signed(DENIED), "version": found})))
    assert (check.name, check.ok) == ("format", False)
    assert "must be of format 7, found " in check.detail
    assert "runs of 0.1 have to be played again" in check.detail
    assert "\x1b" not in check.detail


def test_what_a_terminal_would_obey_is_not_repeated():
    document = sign(KEY, {**signed(DENIED), "\x1b[2J": 1})
    _, (check,) = check_proof(file_of(document))
    assert "\x1b" not in check.detail


def test_a_strangers_proof_is_valid_and_not_trusted():
    written = file_of(signed(DENIED, OTHER))
    assert failed(written) == ["trust"]
    assert [(c.name, c.ok) for c in check_proof(written)[1] if not c.ok] == [("trust", None)]
    assert failed(written, [*TRUSTED, KeyRecord(OTHER.public_key())]) == []


def test_a_denial_needs_as_many_members_as_it_says():
    assert failed(file_of(signed(replace(DENIED, deniability_threshold=3)))) == ["facts"]
    assert failed(file_of(signed(replace(ROLLED_BACK, deniability_threshold=3)))) == []


def test_the_mark_is_hmac_sha256():
    # RFC 4231, test case 2
    assert subject_mark("what do ya want for nothing?", b"Jefe") == (
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    )


@every_answer
def test_no_name_no_salt_and_no_other_member_occurs(facts: Facts):
    written = proof_json(signed(facts)) + page_of(facts)
    assert "client-00017" not in written
    assert SALT.hex() not in written
    held = {name for each in signed(facts)["rounds"] for name in each}
    assert held == {"round_index", "cluster", "size_left", "diameter"}
    # what else was touched is told in numbers and four fixed words
    touched = [value for each in signed(facts)["touched"] for value in each.values()]
    assert {v for v in touched if isinstance(v, str)} <= {
        "cluster size",
        "risk",
        "price",
        "cluster left",
    }


@given(st.text(min_size=1))
def test_nobody_can_be_named_among_what_else_was_touched(name: str):
    with pytest.raises(ValidationError):
        TypeAdapter(Influence).validate_json(
            json.dumps({"round_index": 0, "what": "risk", "cluster": 0, "value": name})
        )
    document = signed(DENIED)
    document["rounds"][0]["members"] = [name]
    assert failed(file_of(sign(KEY, document))) == ["format"]


@given(any_facts)
def test_no_proof_says_what_cannot_be_known(values: dict[str, Any]):
    facts = replace(DENIED, **values)
    said = page_of(replace(facts, copies=())).lower()
    assert not [phrase for phrase in NEVER_SAID if phrase in said]


def test_what_is_no_code_is_not_signed():
    for reason in ("experts certify it", "data erased", "<script>alert(1)</script>"):
        with pytest.raises(LedgerError, match="codes and numbers alone, but 'guarantee'"):
            signed(replace(DENIED, guarantee=ValueOrReason(None, reason)))


def test_a_guarantee_is_shown_in_words_with_all_that_it_does_not_cover():
    shown = html.unescape(page_of(ROLLED_BACK))
    assert all(term.value in shown for term in Term)
    assert not [term for term in Term if term.name in shown]


def test_unknown_is_null_with_a_reason_and_never_nan():
    assert signed(DENIED)["guarantee"] == {"value": None, "reason": "NOT_ACCOUNTED"}
    with pytest.raises(ValueError, match="a value or a reason"):
        ValueOrReason(None, "")
    with pytest.raises(LedgerError, match="only what JSON can say"):
        signed(replace(DENIED, max_distance=float("inf")))


def says(facts: Facts, *expected: str) -> bool:
    found = sentences(facts)
    parts = ("done", "limits", "refuters", "left_to_do")
    said = " ".join(sentence for part in parts for sentence in found[part])
    return all(sentence in said for sentence in expected)


@every_answer
def test_every_answer_says_what_it_must(facts: Facts):
    assert says(facts, "The model's parameters were ", facts.model_after)
    assert says(facts, "he requester's update may have been the one", "62.5%")
    assert says(facts, "Nothing is claimed about membership inference")
    assert says(facts, "Who could refute it", "aw updates", "attack on the requester's")


def test_a_denial_says_that_nothing_was_taken_out():
    assert says(DENIED, "not changed", "not an erasure", "not equivalent to retraining")
    assert says(DENIED, "recomputable from the seed", "right one with probability 100%")
    assert says(DENIED, "recorded which update stood for", "stored no raw updates")
    assert not says(DENIED, "first replayed round")
    assert "at least 2 remaining clients" in sentences(DENIED)["claim"][0]


def test_a_roll_back_says_which_rounds_still_include_the_requester():
    assert says(ROLLED_BACK, "from just before round 5.", "from 1 to 4, before")
    assert says(
        ROLLED_BACK,
        "1 of report, figures, metrics, audit and baseline; 3 states",
        "requester's raw updates that the run had",
    )
    assert says(ROLLED_BACK, "operating system", "how far the noise reaches")
    whole = replace(ROLLED_BACK, first_round=4)
    assert says(whole, "No round before them includes the requester")
    assert not says(whole, "still includes")
    assert not says(replace(ROLLED_BACK, first_round=None), "includes the requester")


def test_only_a_retraining_is_equivalent_to_one():
    for facts in (DENIED, ROLLED_BACK, CALIBRATED):
        assert says(facts, "not an erasure", "not equivalent to retraining")
    assert not says(RETRAINED, "not equivalent")


def test_a_retraining_promises_bits_only_where_they_can_be_repeated():
    assert says(RETRAINED, "no one can repeat it bit for bit", "alone cannot confirm it")
    assert says(replace(RETRAINED, secrets="seeded"), "bit for bit only on the same")
    assert "10 rounds, from just before the first round" in sentences(RETRAINED)["claim"][0]


def test_a_roll_back_in_a_replay_that_chose_anew_says_nothing_of_old_choices():
    anew = replace(ROLLED_BACK, replayed="anew")
    assert says(anew, "not equivalent to retraining", "began with a model that may")
    assert not says(anew, "kept the clusters that they chose")


def test_a_retraining_with_nothing_to_replay_promises_no_bits():
    nothing = replace(RETRAINED, first_replayed_round=None, rounds_replayed=0)
    assert "so none was replayed" in sentences(nothing)["claim"][0]
    assert not says(nothing, "bit for bit")


def test_what_is_kept_sealed_is_said_and_nothing_else_is():
    kept = replace(DENIED, sealed_record_kept=True)
    assert says(kept, "only the requester's name and salt together open", "destroys it")
    assert not says(DENIED, "sealed record")


def test_a_calibration_is_approximate():
    assert says(CALIBRATED, "This is approximate", "still stored, and they identify")
    assert says(CALIBRATED, "Another attack may do better")


def test_an_unknown_probability_is_said_to_be_unknown():
    unknown = replace(DENIED, representative_probability=ValueOrReason(None, "not-hidden"))
    assert says(unknown, "is not known: updates were not hidden")


def test_what_is_nearly_certain_is_not_rounded_to_certainty():
    nearly = replace(DENIED, representative_probability=ValueOrReason(0.99999, ""))
    assert says(nearly, "more than 99.9%")


def test_refuting_a_denial_by_hand():
    assert refutation_success(1.0, 0.0) == 1
    assert refutation_success(0.0, 1.0) == 0.5
    # Phi(1) = 0.841345: a distance of twice the noise
    assert refutation_success(2.0, 1.0) == pytest.approx(0.841345, abs=1e-6)


@every_answer
def test_the_page_shows_every_limit_before_any_figure(facts: Facts):
    document = signed(facts)
    shown = html.unescape(page_of(facts))
    figures_at = shown.index("<h2>Figures</h2>")
    assert all(0 < shown.find(sentence) < figures_at for sentence in sentences(facts)["limits"])
    assert document["signature"]["fingerprint"] in shown
    assert "covey verify" in shown
    assert not re.search(r"https?:|<script|<link|<img", shown)


@given(any_facts)
def test_any_proof_makes_a_page(values: dict[str, Any]):
    shown = page_of(replace(DENIED, **{**values, "copies": ()}))
    assert not [code for code in REASONS if {*"-_"} & {*code} and code in shown]  # words, no codes


def test_a_page_quotes_recipients_and_obeys_no_markup():
    copy = CopyFact(
        what="model",
        sha256=None,
        path_sha256="e" * 64,
        recipient="<script>alert(1)</script>",
        fate="outside",
        notify=True,
    )
    shown = page_of(replace(ROLLED_BACK, copies=(copy,)))
    assert "<script>" not in shown
    assert "<q>&lt;script&gt;" in shown


@every_answer
def test_three_sentences_come_first_then_what_was_done_then_what_is_not_said(facts: Facts):
    found, shown = sentences(facts), html.unescape(page_of(facts))
    assert len(found["summary"]) == 3
    order = [
        *found["summary"],
        "<h2>What was done</h2>",
        *found["done"],
        "<h2>What is claimed</h2>",
        *found["claim"],
        "<h2>What this does not say</h2>",
        *found["limits"],
        "<h2>What could speak against it</h2>",
        *found["refuters"],
        *found["left_to_do"],
        "<h2>Figures</h2>",
    ]
    places = [shown.index(each) for each in order]
    assert places == sorted(places)


@every_answer
def test_what_is_not_said_holds_nothing_that_was_done(facts: Facts):
    limits, done = sentences(facts)["limits"], sentences(facts)["done"]
    assert not [s for s in limits if " deleted before this was signed" in s]
    assert not [s for s in limits if "SHA-256" in s or "played again" in s]
    assert not [s for s in limits if "refute" in s or "may have been" in s]
    assert not [s for s in done if "claimed" in s or "erasure" in s]


def test_figures_have_three_digits():
    figure = AttackFigure(0, 0.5714285714, 0.12345, 0.7)
    facts = replace(
        DENIED,
        measured=ValueOrReason(Measurement(figure, None), ""),
        touched=(Influence(2, "risk", 1, 0.6123456),),
        representative_probability=ValueOrReason(0.9876543, ""),
        rounds=(HeldRound(0, 1, 3, ValueOrReason(0.7654321, "")),),
    )
    shown = page_of(facts)
    assert all(each in shown for each in ("0.571", "0.123", "0.612", "0.988", "0.765"))
    assert not re.search(r"\d\.\d{4,}", shown)
    assert "None" not in shown
    assert "98.8%" in shown


def test_a_replay_from_the_very_beginning_says_so():
    for facts in (RETRAINED, CALIBRATED, replace(ROLLED_BACK, first_replayed_round=0)):
        said = sentences(facts)
        assert "from just before the first round" in said["claim"][0] + said["summary"][1]
        shown = page_of(facts)
        assert "from round 0 on" not in shown
        assert "1: from just before the first round" in shown


def test_what_was_never_there_is_not_called_unknown():
    facts = replace(
        RETRAINED,
        min_anonymity=None,
        deniability_threshold=None,
        rounds=(),
        raw_updates_deleted=ValueOrReason(None, "none-stored"),
        representative_probability=ValueOrReason(None, "not-hidden"),
    )
    shown = page_of(facts)
    assert "not known" not in shown
    assert "No raw updates were deleted: this run stored no raw updates" in shown
    assert "may have been the one" not in shown


def test_copies_are_counted_and_their_recipients_named_once_and_only_as_facts():
    def copy(fate: Any, recipient: str | None = None, *, notify: bool = False) -> Any:
        return CopyFact(
            what="model",
            sha256="d" * 64,
            path_sha256="e" * 64,
            recipient=recipient,
            fate=fate,
            notify=notify,
        )

    facts = replace(
        RETRAINED,
        copies=(
            copy("deleted"),
            copy("outside", "The Forgotten Hospital", notify=True),
            copy("missing"),
            copy("unchanged"),
        ),
    )
    document = signed(facts)
    assert "2 not deleted, and 1 recipient to be notified" in sentences(facts)["summary"][2]
    assert says(facts, "on record: 4, of which deleted, in the run's folder: 1.")
    assert says(facts, "2 copies of earlier models and pages on record outside")
    assert says(facts, "1 copy of a superseded model went to")
    assert page_of(facts).count("The Forgotten Hospital") == 1
    assert failed(file_of(document)) == []
