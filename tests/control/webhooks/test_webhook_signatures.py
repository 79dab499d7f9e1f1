"""Signatures of deliveries: published vectors, and that nothing else is let in."""

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.control.webhooks.signatures import (
    NO_AUTH,
    WINDOW_SECONDS,
    Scheme,
    check_secret,
    sign_v2,
    verified_by,
)
from hermes.domain.errors import ConfigError

NOW = 1_614_265_330.0
SECRET = "a shared secret"
BODY = b'{"action": "opened", "number": 7}'
SVIX_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SVIX_BODY = b'{"test": 2432232314}'
SVIX_HEADERS = {
    "svix-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "svix-timestamp": "1614265330",
    "svix-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}


def mac(message: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()


def genuine() -> dict[Scheme, tuple[str, dict[str, str]]]:
    """One correct delivery of BODY for each scheme: its secret and its headers."""
    key = base64.b64decode(SVIX_SECRET.removeprefix("whsec_"))
    signed = hmac.new(key, b"msg_1.1614265330." + BODY, hashlib.sha256).digest()
    svix = {
        "svix-id": "msg_1",
        "svix-timestamp": "1614265330",
        "svix-signature": f"v1,{base64.b64encode(signed).decode()}",
    }
    return {
        Scheme.SVIX: (SVIX_SECRET, svix),
        Scheme.GENERIC_V2: (SECRET, sign_v2(SECRET, int(NOW), BODY)),
        Scheme.GITHUB: (SECRET, {"x-hub-signature-256": f"sha256={mac(BODY)}"}),
        Scheme.GENERIC_V1: (SECRET, {"x-webhook-signature": mac(BODY)}),
        Scheme.GITLAB: (SECRET, {"x-gitlab-token": SECRET}),
    }


schemes = st.sampled_from(sorted(genuine()))


def test_the_vector_that_github_publishes_is_genuine() -> None:
    signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    found = verified_by(
        "It's a Secret to Everybody", {"x-hub-signature-256": signature}, b"Hello, World!", NOW
    )
    assert found is Scheme.GITHUB


def test_the_vector_that_svix_publishes_is_genuine() -> None:
    assert verified_by(SVIX_SECRET, SVIX_HEADERS, SVIX_BODY, NOW) is Scheme.SVIX


def test_the_same_vector_with_the_unbranded_header_names_is_genuine() -> None:
    headers = {name.replace("svix", "webhook"): value for name, value in SVIX_HEADERS.items()}
    assert verified_by(SVIX_SECRET, headers, SVIX_BODY, NOW) is Scheme.SVIX


def test_one_right_signature_among_several_is_enough_while_a_secret_is_rotated() -> None:
    right = SVIX_HEADERS["svix-signature"]
    several = f"v1,AAAA v2,whatever {right} v1a,zzzz"
    headers = {**SVIX_HEADERS, "svix-signature": several}
    assert verified_by(SVIX_SECRET, headers, SVIX_BODY, NOW) is Scheme.SVIX


@pytest.mark.parametrize("scheme", sorted(genuine()))
def test_a_correct_delivery_is_verified_by_its_scheme(scheme: Scheme) -> None:
    secret, headers = genuine()[scheme]
    assert verified_by(secret, headers, BODY, NOW) is scheme


@given(scheme=schemes, data=st.data())
def test_any_flipped_bit_of_the_body_is_refused(scheme: Scheme, data: st.DataObject) -> None:
    if scheme is Scheme.GITLAB:  # it does not sign the body
        return
    secret, headers = genuine()[scheme]
    body = bytearray(BODY)
    body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert verified_by(secret, headers, bytes(body), NOW) is None


@given(scheme=schemes, data=st.data())
def test_any_flipped_bit_of_a_header_is_refused(scheme: Scheme, data: st.DataObject) -> None:
    secret, headers = genuine()[scheme]
    name = data.draw(st.sampled_from(sorted(headers)))
    value = bytearray(headers[name].encode("latin-1"))
    value[data.draw(st.integers(0, len(value) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    changed = {**headers, name: value.decode("latin-1")}
    assert verified_by(secret, changed, BODY, NOW) is None


@given(scheme=schemes, secret=st.text(min_size=1, max_size=40))
def test_another_secret_is_refused(scheme: Scheme, secret: str) -> None:
    right, headers = genuine()[scheme]
    if secret not in (right, NO_AUTH) and not secret.startswith("whsec_"):
        assert verified_by(secret, headers, BODY, NOW) is None


@pytest.mark.parametrize("scheme", [Scheme.SVIX, Scheme.GENERIC_V2])
@pytest.mark.parametrize("late", [WINDOW_SECONDS + 1, -WINDOW_SECONDS - 1])
def test_a_delivery_outside_its_window_is_a_replay(scheme: Scheme, late: int) -> None:
    secret, headers = genuine()[scheme]
    assert verified_by(secret, headers, BODY, NOW + late) is None
    inside = late - 1 if late > 0 else late + 1
    assert verified_by(secret, headers, BODY, NOW + inside) is scheme


@pytest.mark.parametrize("weak", [Scheme.GENERIC_V2, Scheme.GITHUB, Scheme.GITLAB])
def test_a_wrong_strong_signature_is_not_made_good_by_a_right_weak_one(weak: Scheme) -> None:
    _, right = genuine()[weak]
    svix = {"svix-id": "msg_1", "svix-timestamp": str(int(NOW)), "svix-signature": "v1,AAAA"}
    assert verified_by(SECRET, {**right, **svix}, BODY, NOW) is None
    assert verified_by(SECRET, right, BODY, NOW) is weak


def test_nothing_is_verified_without_a_signature_or_without_a_secret() -> None:
    assert verified_by(SECRET, {}, BODY, NOW) is None
    assert verified_by("", {"x-gitlab-token": ""}, BODY, NOW) is None


def test_without_authentication_everything_is_let_in() -> None:
    assert verified_by(NO_AUTH, {}, BODY, NOW) is Scheme.NONE


@given(
    headers=st.dictionaries(
        st.sampled_from(
            [name for _, headers in genuine().values() for name in headers]
            + ["webhook-id", "webhook-timestamp", "webhook-signature"]
        ),
        st.text(st.characters(max_codepoint=255), max_size=60),
    ),
    body=st.binary(max_size=60),
)
def test_no_made_up_delivery_is_verified_or_breaks_the_check(
    headers: dict[str, str], body: bytes
) -> None:
    assert verified_by(SVIX_SECRET, headers, body, NOW) is None


@pytest.mark.parametrize("secret", ["whsec_", "whsec_!!!", "whsec_abc"])
def test_a_svix_secret_that_is_not_base64_is_a_mistake_in_the_configuration(secret: str) -> None:
    with pytest.raises(ConfigError):
        check_secret(secret)
