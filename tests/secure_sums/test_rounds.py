"""Whole rounds: who drops out, who forges, and what is left of it."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey import ConfigError
from covey.secure_sums.client import ClientRound
from covey.secure_sums.crypto import Pairs, private_key, seed_key
from covey.secure_sums.messages import (
    Agreement,
    Agreements,
    Deliveries,
    Keys,
    MaskedInput,
    Reason,
    RefusedError,
    Roster,
    RoundGivenUpError,
    Shares,
    Survivors,
    Unmasking,
)
from covey.secure_sums.server import ServerRound
from secure_sums.playing import LENGTH, Playing, identities, numbers, played, seeded, terms, total

FEW = numbers(6)
NAMES = tuple(FEW)


def test_three_in_ten_may_drop_out_some_at_each_step():
    values = numbers(40)
    names = tuple(values)
    playing = Playing.of(values, terms(neighbours=16, minimum=28)).keys()
    playing = playing.without(names[:4]).shares().without(names[4:8]).masked()
    assert_sum(playing.without(names[8:12]).opened(), names[8:])


def assert_sum(playing: Playing, names):
    assert_sum_of(playing, names)
    assert not playing.server.refused


def assert_sum_of(playing: Playing, names):
    result = playing.sum()
    assert set(result.clients) == set(names)
    assert np.array_equal(result.values, total(playing.values, names))


def test_clients_may_die_between_any_two_messages():
    playing = Playing.of(FEW, terms(signed=True)).keys()
    for step in (Playing.shares, Playing.masked, Playing.opened):
        sides = {n: ClientRound.from_bytes(c.to_bytes()) for n, c in playing.sides.items()}
        playing = step(replace(playing, sides=sides))
    assert_sum(playing, NAMES)
    assert playing.sent == played(FEW, terms(signed=True)).sent


def test_a_client_masks_once():
    playing = Playing.of(FEW, terms()).keys().shares()
    deliveries = playing.server.close()[1][NAMES[0]]
    after, _ = playing.sides[NAMES[0]].mask(deliveries, FEW[NAMES[0]])
    with pytest.raises(RefusedError, match="sent one before"):
        after.mask(deliveries, FEW[NAMES[1]])


def test_a_round_needs_its_smallest_cohort_at_the_server():
    agreed = terms(minimum=5)
    playing = Playing.of(FEW, agreed).keys()
    with pytest.raises(RoundGivenUpError, match="4 of at least 5"):
        Playing.of(FEW, agreed).without(NAMES[:2]).keys().shares()
    with pytest.raises(RoundGivenUpError, match="4 of at least 5"):
        playing.without(NAMES[:2]).shares().masked()
    with pytest.raises(RoundGivenUpError, match="4 of at least 5"):
        playing.shares().without(NAMES[:2]).masked().opened()
    with pytest.raises(RoundGivenUpError, match="shares"):
        playing.shares().masked().without(NAMES[:4]).opened().sum()


def test_clients_refuse_less_than_the_smallest_cohort_themselves():
    careless = Playing.of(FEW, terms(minimum=3)).keys()
    strict = {n: replace(c, terms=terms(minimum=7)) for n, c in careless.sides.items()}
    with pytest.raises(RefusedError, match="smallest cohort"):
        replace(careless, sides=strict).shares()
    side = careless.shares().masked().sides[NAMES[0]]
    few = Survivors(careless.terms.session, NAMES[:2])
    refused(side.unmask, few, Reason.TOO_FEW_CLIENTS)


def refused(act, message, reason: Reason, *others):
    with pytest.raises(RefusedError) as error:
        act(message.to_bytes(), *others)
    assert error.value.reason is reason


def test_no_client_is_singled_out_by_two_sums():
    playing = Playing.of(FEW, terms(minimum=3)).keys().shares().masked()
    names = frozenset(NAMES)
    side = replace(playing.sides[NAMES[0]], earlier=(names,))
    session = playing.terms.session
    refused(side.unmask, Survivors(session, NAMES[:5]), Reason.SINGLED_OUT)
    refused(side.unmask, Survivors(session, NAMES[:3]), Reason.SINGLED_OUT)
    side.unmask(Survivors(session, NAMES).to_bytes())


def test_one_client_is_asked_for_one_kind_of_share():
    side = Playing.of(FEW, terms()).keys().shares().masked().sides[NAMES[0]]
    session = side.terms.session
    after, _ = side.unmask(Survivors(session, NAMES).to_bytes())
    refused(after.unmask, Survivors(session, NAMES[:5]), Reason.REPEATED)


def test_two_lists_of_survivors_find_no_majority_that_signs_both():
    playing = Playing.of(FEW, terms(signed=True)).keys().shares().masked()
    server, _ = playing.server.close()
    known = identities(NAMES)
    halves, session = (NAMES, NAMES[:5]), playing.terms.session
    sides = dict(playing.sides)
    for i, name in enumerate(NAMES[:5]):
        shown = Survivors(session, halves[i % 2]).to_bytes()
        sides[name], signed = sides[name].agree(shown, known[name])
        server = server.accept(name, signed)
    _, signed = server.close()
    for name in NAMES[:5]:
        with pytest.raises(RefusedError, match="too few clients signed"):
            sides[name].unmask_signed(signed[name], known[name])


def test_who_is_gone_is_none_of_those_who_sign():
    playing = Playing.of(FEW, terms(signed=True)).keys().shares().masked()
    known, stay = identities(NAMES), Survivors(playing.terms.session, NAMES[:4])
    side, _ = playing.sides[NAMES[0]].agree(stay.to_bytes(), known[NAMES[0]])
    said = Agreement.signed_part(playing.server.roster, stay.names)

    def signed(*names: str) -> Agreements:
        agreements = (Agreement(stay.session, name, known[name].sign(said)) for name in names)
        return Agreements(stay.session, tuple(agreements))

    own = known[NAMES[0]]
    refused(side.unmask_signed, signed(*NAMES[:3], NAMES[5]), Reason.TOO_FEW_AGREE, own)
    side.unmask_signed(signed(*NAMES[:4]).to_bytes(), own)


def test_a_seed_makes_another_mask_in_another_session():
    here, terms_of_session = terms(), replace(terms(), session=bytes(32))
    assert seed_key(bytes(32), here) != seed_key(bytes(32), terms_of_session)


def test_signatures_and_masks_hang_on_the_whole_roster():
    playing = Playing.of(FEW, terms()).keys()
    roster = playing.server.roster
    other = replace(roster, keys=(*roster.keys[:-1], replace(roster.keys[-1], signature=b"1")))
    masked, said = list[bytes](), set[bytes]()
    for sent in (roster, other):
        numbers = np.zeros(LENGTH, dtype="<u8")
        own = private_key(playing.sides[NAMES[0]].masking)
        Pairs(playing.terms, sent).add_mask(numbers, own, NAMES[0], NAMES[1])
        masked.append(numbers.tobytes())
        said.add(Agreement.signed_part(sent, NAMES))
    assert masked[0] != masked[1]
    assert len(said) == 2


def test_where_clients_sign_nobody_opens_without_signatures():
    playing = Playing.of(FEW, terms(signed=True)).keys().shares().masked()
    survivors = Survivors(playing.terms.session, NAMES)
    refused(playing.sides[NAMES[0]].unmask, survivors, Reason.FORGED_SIGNATURE)


def test_keys_of_others_are_found_by_their_signatures():
    playing = Playing.of(FEW, terms(signed=True)).keys()
    _, letters = playing.server.close()
    roster = Roster.from_bytes(letters[NAMES[0]], playing.terms, 6)
    other = replace(roster.keys[1], masking=roster.keys[2].masking)
    forged = replace(roster, keys=(roster.keys[0], other, *roster.keys[2:]))
    known = identities(NAMES)[NAMES[0]]
    share = playing.sides[NAMES[0]].share
    refused(share, forged, Reason.FORGED_SIGNATURE, known)
    unsigned = replace(roster, keys=tuple(replace(k, signature=b"") for k in roster.keys))
    refused(share, unsigned, Reason.FORGED_SIGNATURE, known)


def reasons(server: ServerRound) -> list[tuple[str, Reason]]:
    return [(refusal.sender, refusal.reason) for refusal in server.refused]


def test_messages_that_are_not_in_order_are_refused_by_name_and_the_round_goes_on():
    playing = Playing.of(FEW, terms()).keys()
    first, second = NAMES[:2]
    keys = playing.sent["keys"]
    stale = Keys.from_bytes(keys[first], playing.terms, 6)
    server = replace(playing.server, keys=playing.server.keys[1:])
    for sender, data in (
        ("stranger", keys[first]),
        (first, keys[second]),
        (second, keys[second]),
        (first, b"{}"),
        (first, b"x" * 10**6),
        (first, replace(stale, session=bytes(32)).to_bytes()),
        (first, replace(stale, masking=bytes(32)).to_bytes()),
        (first, replace(stale, masking=playing.server.keys[1].masking).to_bytes()),
    ):
        server = server.accept(sender, data)
    assert [reason for _, reason in reasons(server)] == [
        Reason.UNKNOWN_SENDER,
        Reason.IMPERSONATED,
        Reason.REPEATED,
        Reason.MALFORMED,
        Reason.OVERSIZED,
        Reason.WRONG_SESSION,
        Reason.WEAK_KEY,
        Reason.FORGED_KEYS,
    ]
    mended = replace(playing, server=server.accept(first, keys[first]))
    assert_sum_of(mended.shares().masked().opened(), NAMES)


def test_masked_numbers_are_taken_once_in_time_and_whole():
    playing = Playing.of(FEW, terms()).keys().shares().without(NAMES[5:]).masked()
    first, late = NAMES[0], NAMES[5]
    sent = playing.sent["masked"][first]
    masked = MaskedInput.from_bytes(sent, playing.terms, 6)
    server = playing.server.accept(first, sent)
    server = server.accept(late, replace(masked, sender=late).to_bytes()[:-8])
    server = server.accept(late, sent[:20])
    server = server.accept(late, bytes(10**6))
    server, survivors = server.close()
    server = server.accept(late, replace(masked, sender=late).to_bytes())
    assert reasons(server) == [
        (first, Reason.REPEATED),
        (late, Reason.WRONG_LENGTH),
        (late, Reason.MALFORMED),
        (late, Reason.OVERSIZED),
        (late, Reason.LATE),
    ]
    playing = replace(playing, server=server)
    assert_sum_of(playing.step("unmasking", lambda n, side: side.unmask(survivors[n])), NAMES[:5])


def test_a_forged_share_is_named_and_does_not_count():
    playing = Playing.of(FEW, terms()).keys().shares().without(NAMES[5:]).masked()
    server, survivors = playing.server.close()
    for name, side in playing.sides.items():
        data = side.unmask(survivors[name])[1]
        if name == NAMES[0]:
            opened = Unmasking.from_bytes(data, playing.terms, 6)
            forged = tuple(
                replace(share, share=share.share[:-1] + bytes([share.share[-1] ^ 1]))
                for share in opened.shares
            )
            other = replace(forged[0], owner="stranger")
            wrong = replace(opened, shares=(other, *forged[1:]))
            server = server.accept(name, wrong.to_bytes())
            data = replace(opened, shares=forged).to_bytes()
        server = server.accept(name, data)
    assert reasons(server) == [
        (NAMES[0], Reason.WRONG_CLIENTS),
        *[(NAMES[0], Reason.FORGED_SHARE)] * 5,
    ]
    assert_sum_of(replace(playing, server=server), NAMES[:5])


def test_who_shares_no_secret_ends_the_round_by_name():
    """It masked with another seed than it shared: nobody can take that off."""
    playing = Playing.of(FEW, terms()).keys().shares()
    liar = replace(playing.sides[NAMES[2]], seed=seeded("other")(32))
    playing = replace(playing, sides={**playing.sides, NAMES[2]: liar})
    sent = playing.sent["shares"][NAMES[2]]
    shares = Shares.from_bytes(sent, playing.terms, 6)
    false = replace(shares, seed_digest=bytes(32))
    others = tuple(s for s in playing.server.shares if s.sender != NAMES[2])
    server = replace(playing.server, shares=(*others, false))
    with pytest.raises(RoundGivenUpError, match=NAMES[2]):
        replace(playing, server=server).masked().opened().sum()


def test_deliveries_of_strangers_or_too_few_are_refused():
    playing = Playing.of(FEW, terms()).keys().shares()
    delivered = playing.server.close()[1][NAMES[0]]
    deliveries = Deliveries.from_bytes(delivered, playing.terms, 6)
    mask = playing.sides[NAMES[0]].mask
    values = FEW[NAMES[0]]
    cut = replace(deliveries, deliveries=deliveries.deliveries[:2])
    refused(mask, cut, Reason.TOO_FEW_CLIENTS, values)
    twice = replace(deliveries, deliveries=deliveries.deliveries[:1] * 5)
    refused(mask, twice, Reason.WRONG_CLIENTS, values)
    refused(mask, deliveries, Reason.WRONG_LENGTH, values[:-1])


@pytest.mark.parametrize(
    "wrong",
    [{"minimum": 2}, {"neighbours": 3}, {"majority": 0.4}, {"majority": 1.0}, {"length": 0}],
)
def test_terms_that_protect_nobody_are_refused(wrong):
    with pytest.raises(ConfigError, match="secure sums"):
        terms(**{"length": LENGTH, **wrong})


def test_two_disjoint_majorities_of_neighbours_do_not_exist():
    for clients in range(3, 60):
        for k in range(2, 20, 2):
            agreed = terms(neighbours=k)
            assert 2 * agreed.threshold(clients) > agreed.degree(clients)
            assert 2 * agreed.quorum(clients) > clients


def at_each_step() -> list[ServerRound]:
    playing = Playing.of(FEW, terms())
    keys = playing.keys()
    shares = keys.shares()
    masked = shares.masked()
    return [playing.server, keys.server, shares.server, masked.server, masked.opened().server]


AT_EACH_STEP = at_each_step()
TEXT = st.dictionaries(
    st.sampled_from(["session", "sender", "sealing", "masking", "sealed", "shares"]),
    st.none() | st.text(max_size=4) | st.lists(st.integers(), max_size=2),
).map(lambda fields: json.dumps(fields).encode() + b"\n")


@given(st.binary(max_size=300) | TEXT, st.sampled_from([*NAMES, "stranger"]))
def test_nothing_that_comes_breaks_a_round(data: bytes, sender: str):
    for server in AT_EACH_STEP:
        after = server.accept(sender, data)
        assert len(after.refused) == len(server.refused) + 1
        assert replace(after, refused=server.refused) == server
