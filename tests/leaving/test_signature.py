import base64
import random
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from covey import ConfigError
from covey.base.signature import (
    KeyRecord,
    SigningKey,
    canonical,
    check_key,
    check_signature,
    fingerprint,
    key_records,
    public_keys_path,
    revoke_key,
    rotate_key,
    sign,
    signing_key,
)

KEY = SigningKey.from_private_bytes(bytes(32))
OTHER = SigningKey.from_private_bytes(bytes([1] * 32))

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
documents = st.dictionaries(st.text(max_size=4), json_values, max_size=4)


def trusted_keys(place: Path):
    return tuple(record.public for record in key_records(place))


def verdicts(document, trusted=None) -> list[bool | None]:
    records = None if trusted is None else [KeyRecord(key) for key in trusted]
    return [check.ok for check in check_signature(document, records, "written")][:2]


@given(documents)
def test_what_is_signed_is_valid_and_undecided_without_a_trusted_key(document):
    signed = sign(KEY, document)
    assert {k: v for k, v in signed.items() if k != "signature"} == {
        k: v for k, v in document.items() if k != "signature"
    }
    assert verdicts(signed) == [True, None]
    assert check_signature(signed, None, "written")[1].detail == (
        f"signed by {fingerprint(KEY.public_key())}, not known to you"
    )


@given(documents, st.text(max_size=4), json_values)
def test_a_changed_document_is_refused(document, name, value):
    signed = sign(KEY, document)
    if name == "signature" or canonical({**signed, name: value}) == canonical(signed):
        return
    assert verdicts({**signed, name: value}, [KEY.public_key()]) == [False, False]


def test_another_key_is_valid_and_not_trusted():
    assert verdicts(sign(OTHER, {}), [KEY.public_key()]) == [True, False]
    assert verdicts(sign(OTHER, {}), []) == [True, False]


def test_naming_the_trusted_key_over_a_strangers_signature_is_refused():
    forged = sign(OTHER, {"a": 1})
    forged["signature"]["public_key"] = sign(KEY, {})["signature"]["public_key"]
    assert verdicts(forged, [KEY.public_key()]) == [False, False]


def test_a_malformed_signature_is_refused_and_does_not_raise():
    own = sign(KEY, {})["signature"]
    fields = [own | {name: key} for name in own for key in ("", None, "A", "ü", "AAAA")]
    for record in (None, [], {}, *fields, *({**own, name: 3} for name in own)):
        assert verdicts({"signature": record}) == [False, False], record
    assert verdicts({}) == [False, False]
    assert verdicts({"signature": own, "a": float("nan")}) == [False, False]


def test_another_spelling_of_the_same_signature_is_refused():
    signed = sign(KEY, {})
    value = signed["signature"]["value"]
    # 64 bytes leave four bits of the last character unused
    spelt = value[:-3] + chr(ord(value[-3]) + 1) + "=="
    assert base64.b64decode(spelt) == base64.b64decode(value)
    signed["signature"]["value"] = spelt
    assert verdicts(signed) == [False, False]


def test_a_fingerprint_is_eight_groups_of_four_digits():
    # SHA-256 of RFC 8032's first public key, computed by `sha256sum`
    public = SigningKey.from_private_bytes(
        bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    ).public_key()
    assert public.public_bytes_raw().hex().startswith("d75a980182b10ab7")
    assert fingerprint(public) == "21fe-31df-a154-a261-626b-f854-046f-d227"


def test_a_key_is_made_once_for_its_owner_alone(tmp_path: Path):
    place = tmp_path / "new" / "key.pem"
    key = signing_key(place)
    assert place.stat().st_mode & 0o777 == 0o600
    assert place.parent.stat().st_mode & 0o077 == 0
    assert signing_key(place).public_key() == key.public_key()
    assert trusted_keys(tmp_path / "new" / "key.pub.pem") == (key.public_key(),)
    names = sorted(path.name for path in place.parent.iterdir())
    assert names == ["key.pem", "key.pub.pem"]


def test_of_many_who_make_the_key_at_once_all_get_the_same(tmp_path: Path):
    place = tmp_path / "key.pem"
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(signing_key, [place] * 8))
    public = [key.public_key() for key in keys]
    published = trusted_keys(tmp_path / "key.pub.pem")
    assert len({fingerprint(key) for key in (*public, *published)}) == 1


def test_a_key_that_others_may_touch_is_refused(tmp_path: Path):
    place = tmp_path / "key.pem"
    signing_key(place)
    place.chmod(0o604)
    with pytest.raises(ConfigError, match="its owner alone, found mode 0604"):
        signing_key(place)


def private_pem(key) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public_pem(key) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


STRANGER = X25519PrivateKey.from_private_bytes(bytes(32))  # agrees, cannot sign


TORN = re.sub(rb"\n.*\n-----END", b"\n-----END", public_pem(KEY))


@pytest.mark.parametrize(
    ("read", "pem"),
    [
        *((signing_key, pem) for pem in (b"", b"torn", private_pem(STRANGER))),
        *((trusted_keys, pem) for pem in (b"", private_pem(KEY), public_pem(STRANGER), TORN)),
        (trusted_keys, public_pem(KEY) + public_pem(STRANGER)),
    ],
)
def test_a_file_that_holds_anything_but_keys_of_its_kind_is_refused(tmp_path, read, pem: bytes):
    place = tmp_path / "key.pem"
    place.touch(mode=0o600)
    place.write_bytes(pem)
    with pytest.raises(ConfigError, match="must be a PEM file of Ed25519 keys"):
        read(place)


def test_a_damaged_key_is_noticed_and_never_signs_as_another(tmp_path: Path):
    place, generator = tmp_path / "key.pem", random.Random(16)  # noqa: S311
    own, whole = signing_key(place).public_key(), place.read_bytes()
    published = public_keys_path(place).read_bytes()
    refused = 0
    for _ in range(80):
        at, bit = generator.randrange(len(whole)), generator.randrange(8)
        flipped = bytes([whole[at] ^ (1 << bit)])
        place.write_bytes(whole[:at] + flipped + whole[at + 1 :])
        try:
            assert signing_key(place).public_key() == own
        except ConfigError as error:
            assert str(place) in str(error)  # noqa: PT017 - one of the two has to be
            refused += 1
        assert public_keys_path(place).read_bytes() == published
    assert refused > 40


def test_a_damaged_key_of_ones_own_is_compared_with_the_published_one(tmp_path: Path):
    place = tmp_path / "key.pem"
    key = signing_key(place)
    place.write_bytes(private_pem(key))
    assert signing_key(place).public_key() == key.public_key()
    place.write_bytes(private_pem(OTHER))
    with pytest.raises(ConfigError, match="found another or a damaged one"):
        signing_key(place)


def verdict(signer, at, place: Path) -> bool | None:
    (record,) = [one for one in key_records(place) if one.public == signer]
    return check_key(record, at).ok


def test_a_key_counts_from_its_first_use_until_it_is_replaced_or_revoked(tmp_path: Path):
    place, now = tmp_path / "key.pem", datetime.now(UTC)
    public, second = public_keys_path(place), timedelta(seconds=60)
    old = signing_key(place).public_key()
    assert verdict(old, now, public) or verdict(old, now + second, public)
    new = rotate_key(place).public_key()
    assert new != old
    assert [path.suffix for path in tmp_path.iterdir()].count(".retired") == 1
    (first, last) = key_records(public)
    assert (first.public, last.public) == (old, new)
    assert verdict(old, first.since, public) is True
    assert verdict(old, now + second, public) is False  # it was replaced
    assert verdict(new, now - second, public) is False  # it was not there yet
    revoke_key(fingerprint(new), place)
    later = replace(last, revoked=now + second)  # the date is the signer's word
    assert check_key(later, now + second / 2).ok is None
    assert verdict(new, now + second, public) is False
    with pytest.raises(ConfigError, match="covey ledger keys --rotate"):
        signing_key(place)
    with pytest.raises(ConfigError, match="it is revoked"):
        revoke_key(fingerprint(new), place)
    assert rotate_key(place).public_key() not in (old, new)


def test_public_keys_without_dates_count_always(tmp_path: Path):
    place = tmp_path / "keys.pem"
    place.write_bytes(public_pem(KEY))
    assert verdict(KEY.public_key(), datetime(1999, 1, 1, tzinfo=UTC), place) is True
    assert verdict(KEY.public_key(), None, place) is False  # it says no date at all
