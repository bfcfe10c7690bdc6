"""A server that keeps every message, alone or with colluders, has sums and nothing else.

It is given all that helps: the population that might have been there, and every secret
that opened shares or colluders tell. Whatever it takes off a masked vector, and whichever
numbers it believes to be under the rest: the remainder must be uniform mod 2^64. The same
test must find a client that leaves out its masks.
"""

from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np
import pytest
from scipy.stats import chi2, ks_2samp

from covey.secure_sums.client import ClientRound
from covey.secure_sums.crypto import Pairs, add_stream, private_key, seed_key
from covey.secure_sums.messages import MaskedInput, Unmasking, secret_from
from secure_sums.playing import Playing, numbers, played, terms, total

CLIENTS, LENGTH = 10, 400
HERE = numbers(CLIENTS, LENGTH)
ELSEWHERE = {
    name: (vector + 10**6 if i % 2 else vector - 10**6)
    for i, (name, vector) in enumerate(HERE.items())
}
"""Another population with the same sums."""

AGREED = terms(LENGTH, minimum=5)
SURE = 1e-6


def masked(playing: Playing, name: str) -> np.ndarray:
    sent = playing.sent["masked"][name]
    masked_numbers = MaskedInput.from_bytes(sent, playing.terms, CLIENTS).numbers
    return np.frombuffer(masked_numbers, "<u8").copy()


def without_own_mask(playing: Playing, name: str) -> np.ndarray:
    """Take off what the opened shares of a survivor's seed make: what a server can do."""
    pairs = Pairs(playing.terms, playing.server.roster)
    shares = {
        pairs.point(unmasking.sender): share.share
        for unmasking in playing.server.unmaskings
        for share in unmasking.shares
        if share.owner == name
    }
    seed = secret_from(shares)
    assert seed is not None
    left = masked(playing, name)
    add_stream(left, seed_key(seed, playing.terms), sign=-1)
    return left


def without_colluders(playing: Playing, name: str, colluders) -> np.ndarray:
    """Take off the pairwise masks that colluding neighbours tell, too."""
    left = without_own_mask(playing, name)
    pairs = Pairs(playing.terms, playing.server.roster)
    for other in colluders:
        pairs.add_mask(left, private_key(playing.sides[other].masking), other, name)
    return left


def chance(remainders: list[np.ndarray]) -> float:
    """Return how probable bytes as uneven as these are if they are uniform."""
    counts = np.bincount(np.concatenate(remainders).view(np.uint8), minlength=256)
    expected = counts.sum() / 256
    return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), 255))


VIEWS: dict[str, Callable[[Playing, str], np.ndarray]] = {
    "as it came": masked,
    "without its own mask": without_own_mask,
    "of t - 1 colluders": lambda playing, name: without_colluders(
        playing, name, list(HERE)[: AGREED.threshold(CLIENTS) - 1]
    ),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("guess", [HERE, ELSEWHERE], ids=["right", "wrong"])
def test_what_is_left_of_each_client_is_uniform(view, guess):
    playing = played(HERE, AGREED)
    victims = list(HERE)[AGREED.threshold(CLIENTS) - 1 :]
    differences = [VIEWS[view](playing, name) - guess[name].astype("<u8") for name in victims]
    assert chance(differences) > SURE
    assert all(chance([one]) > SURE for one in differences)


def test_two_populations_of_equal_sums_send_alike():
    first, second = played(HERE, AGREED), played(ELSEWHERE, AGREED, seed="second")
    for name in HERE:
        one, other = without_own_mask(first, name), without_own_mask(second, name)
        alike = np.asarray(ks_2samp(one.astype(float), other.astype(float)))
        assert alike[1] > SURE
    assert np.array_equal(first.sum().values, second.sum().values)


def test_the_sum_of_everybody_is_what_is_left_of_all_masks():
    """So the test above looks at the right numbers: added up, they are not uniform."""
    playing = played(HERE, AGREED)
    left = np.sum([without_own_mask(playing, name) for name in HERE], axis=0)
    assert np.array_equal(left, total(HERE, HERE).astype("<u8"))
    assert chance([left]) < SURE


class NoPairs(ClientRound):
    """A client that is masked by its own mask alone, which survivors' shares take off."""

    def mask(self, data, values):
        after, message = super().mask(data, values)
        sent = MaskedInput.from_bytes(message, self.terms, CLIENTS)
        left = values.astype("<u8")
        add_stream(left, seed_key(self.seed, self.terms), sign=1)
        return after, replace(sent, numbers=left.tobytes()).to_bytes()


def test_a_client_without_pairwise_masks_is_found():
    name = list(HERE)[-1]
    before_masks = Playing.of(HERE, AGREED).keys().shares()
    side = before_masks.sides[name]
    bare = NoPairs(**{field.name: getattr(side, field.name) for field in fields(side)})
    playing = replace(before_masks, sides={**before_masks.sides, name: bare}).masked().opened()
    left = without_own_mask(playing, name)
    assert chance([left - HERE[name].astype("<u8")]) < SURE
    assert chance([left]) < SURE  # even by who does not guess its numbers
    assert chance([masked(playing, name)]) > SURE  # and not by who keeps the masks on


def test_a_late_client_s_numbers_stay_under_its_own_mask():
    """Its masking key is told, as if it had dropped out, and its numbers came after all."""
    playing = Playing.of(HERE, AGREED).keys().shares().masked()
    name = list(HERE)[-1]
    lost = replace(playing.server, masked=tuple(set(HERE) - {name}))
    opened = replace(playing, server=lost).without((name,)).opened()
    pairs = Pairs(opened.terms, opened.server.roster)
    secret = secret_from(
        {
            pairs.point(one): share.share
            for one, data in opened.sent["unmasking"].items()
            for share in Unmasking.from_bytes(data, opened.terms, CLIENTS).shares
            if share.owner == name
        }
    )
    assert secret is not None
    key, left = private_key(secret), masked(playing, name)
    for other in set(HERE) - {name}:
        minus = np.zeros_like(left)
        pairs.add_mask(minus, key, name, other)
        left -= minus
    assert chance([left - HERE[name].astype("<u8")]) > SURE
