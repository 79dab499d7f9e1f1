"""Signatures of deliveries: published vectors, and that nothing else is let in."""

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.control.webhooks.signatures import (
    NO_AUTH,
    SCHEMES,
    SignatureScheme,
    check_secret,
    identity,
    scheme_of,
    sign,
    sign_v2,
)
from hermes.control.webhooks.signatures import verified_by as scheme_that_verifies
from hermes.domain.errors import ConfigError

NOW = 1_614_265_330.0
SECRET = "a shared secret"
BODY = b'{"action": "opened", "number": 7, "webhookTimestamp": 1614265330000}'
STRIPE_SECRET = "whsec_not-in-base64"
SVIX_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SVIX_BODY = b'{"test": 2432232314}'
SVIX_HEADERS = {
    "svix-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "svix-timestamp": "1614265330",
    "svix-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}


WINDOW_SECONDS = 300


def verified_by(
    secret: str,
    headers: dict[str, str],
    body: bytes,
    now: float,
    scheme: SignatureScheme | None = None,
) -> str | None:
    found = scheme_that_verifies(secret, headers, body, now, scheme)
    return found.name if found else None


def mac(message: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()


def genuine() -> dict[str, tuple[str, dict[str, str]]]:
    """One correct delivery of BODY for each scheme: its secret and its headers."""
    key = base64.b64decode(SVIX_SECRET.removeprefix("whsec_"))
    signed = hmac.new(key, b"msg_1.1614265330." + BODY, hashlib.sha256).digest()
    svix = {
        "svix-id": "msg_1",
        "svix-timestamp": "1614265330",
        "svix-signature": f"v1,{base64.b64encode(signed).decode()}",
    }
    stripe = f"t=1614265330,v1={mac(b'1614265330.' + BODY, STRIPE_SECRET)},v0=old"
    slack = f"v0={mac(b'v0:1614265330:' + BODY)}"
    shopify = base64.b64encode(hmac.new(SECRET.encode(), BODY, hashlib.sha256).digest())
    return {
        "svix": (SVIX_SECRET, svix),
        "generic_v2": (SECRET, sign_v2(SECRET, int(NOW), BODY)),
        "stripe": (STRIPE_SECRET, {"stripe-signature": stripe.removesuffix(",v0=old")}),
        "slack": (
            SECRET,
            {"x-slack-signature": slack, "x-slack-request-timestamp": "1614265330"},
        ),
        "linear": (SECRET, {"linear-signature": mac(BODY)}),
        "shopify": (SECRET, {"x-shopify-hmac-sha256": shopify.decode()}),
        "github": (SECRET, {"x-hub-signature-256": f"sha256={mac(BODY)}"}),
        "generic_v1": (SECRET, {"x-webhook-signature": mac(BODY)}),
        "gitlab": (SECRET, {"x-gitlab-token": SECRET}),
    }


schemes = st.sampled_from(sorted(genuine()))


def test_the_vector_that_github_publishes_is_genuine() -> None:
    signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    found = verified_by(
        "It's a Secret to Everybody", {"x-hub-signature-256": signature}, b"Hello, World!", NOW
    )
    assert found == "github"


def test_the_vector_that_svix_publishes_is_genuine() -> None:
    assert verified_by(SVIX_SECRET, SVIX_HEADERS, SVIX_BODY, NOW) == "svix"


def test_the_same_vector_with_the_unbranded_header_names_is_genuine() -> None:
    headers = {name.replace("svix", "webhook"): value for name, value in SVIX_HEADERS.items()}
    assert verified_by(SVIX_SECRET, headers, SVIX_BODY, NOW) == "standard"


def test_one_right_signature_among_several_is_enough_while_a_secret_is_rotated() -> None:
    right = SVIX_HEADERS["svix-signature"]
    several = f"v1,AAAA v2,whatever {right} v1a,zzzz"
    headers = {**SVIX_HEADERS, "svix-signature": several}
    assert verified_by(SVIX_SECRET, headers, SVIX_BODY, NOW) == "svix"


@pytest.mark.parametrize("scheme", sorted(genuine()))
def test_a_correct_delivery_is_verified_by_its_scheme(scheme: str) -> None:
    secret, headers = genuine()[scheme]
    assert verified_by(secret, headers, BODY, NOW) == scheme


@given(scheme=schemes, data=st.data())
def test_any_flipped_bit_of_the_body_is_refused(scheme: str, data: st.DataObject) -> None:
    if scheme == "gitlab":  # it does not sign the body
        return
    secret, headers = genuine()[scheme]
    body = bytearray(BODY)
    body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert verified_by(secret, headers, bytes(body), NOW) is None


@given(scheme=schemes, data=st.data())
def test_any_flipped_bit_of_a_header_is_refused(scheme: str, data: st.DataObject) -> None:
    secret, headers = genuine()[scheme]
    name = data.draw(st.sampled_from(sorted(headers)))
    value = bytearray(headers[name].encode("latin-1"))
    value[data.draw(st.integers(0, len(value) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    changed = {**headers, name: value.decode("latin-1")}
    assert verified_by(secret, changed, BODY, NOW) is None


@given(scheme=schemes, secret=st.text(min_size=1, max_size=40))
def test_another_secret_is_refused(scheme: str, secret: str) -> None:
    right, headers = genuine()[scheme]
    if secret not in (right, NO_AUTH) and not secret.startswith("whsec_"):
        assert verified_by(secret, headers, BODY, NOW) is None


@pytest.mark.parametrize("scheme", ["svix", "generic_v2", "stripe", "slack"])
@pytest.mark.parametrize("late", [WINDOW_SECONDS + 1, -WINDOW_SECONDS - 1])
def test_a_delivery_outside_its_window_is_a_replay(scheme: str, late: int) -> None:
    secret, headers = genuine()[scheme]
    assert verified_by(secret, headers, BODY, NOW + late) is None
    inside = late - 1 if late > 0 else late + 1
    assert verified_by(secret, headers, BODY, NOW + inside) == scheme


WEAK = [name for name, scheme in SCHEMES.items() if scheme.signed == "{body}"]
TIMED = [name for name, scheme in SCHEMES.items() if "{timestamp}" in scheme.signed]


@pytest.mark.parametrize("strong", TIMED)
@pytest.mark.parametrize("weak", [name for name in WEAK if name not in ("linear", "gitlab")])
@pytest.mark.parametrize("body", [BODY, b"token=x&text=now", b'{"command": "a=b"}'])
def test_what_was_signed_with_a_time_is_no_body_of_a_scheme_without_one(
    strong: str, weak: str, body: bytes
) -> None:
    signed = SCHEMES[strong].signed.replace("{id}", "msg_2.ab==").encode()
    signed = signed.replace(b"{timestamp}", b"1614265330").replace(b"{body}", body)
    replayed = sign(SCHEMES[weak], SECRET, 0, signed)
    for scheme in (None, SCHEMES[weak]):
        assert verified_by(SECRET, replayed, signed, NOW, scheme) is None


@pytest.mark.parametrize(
    "body",
    [
        b'{"ts":1614265330.5,"a":"x=1"}',
        b' [1614265330.5, "x:1614265330:y"]',
        b"ts=1614265330.123456&user=U1",
        b"text=at.1614265330.5&user=U1",
        b"1614265330=yes&user=U1",
    ],
)
@pytest.mark.parametrize("scheme", ["github", "generic_v1", "shopify"])
def test_a_body_with_times_in_it_is_taken(scheme: str, body: bytes) -> None:
    assert verified_by(SECRET, sign(SCHEMES[scheme], SECRET, 0, body), body, NOW) == scheme


@pytest.mark.parametrize("weak", ["generic_v2", "github", "gitlab", "slack", "shopify"])
def test_a_wrong_strong_signature_is_not_made_good_by_a_right_weak_one(weak: str) -> None:
    _, right = genuine()[weak]
    svix = {"svix-id": "msg_1", "svix-timestamp": str(int(NOW)), "svix-signature": "v1,AAAA"}
    assert verified_by(SECRET, {**right, **svix}, BODY, NOW) is None
    assert verified_by(SECRET, right, BODY, NOW) == weak


def test_nothing_is_verified_without_a_signature_or_without_a_secret() -> None:
    assert verified_by(SECRET, {}, BODY, NOW) is None
    assert verified_by("", {"x-gitlab-token": ""}, BODY, NOW) is None


def test_without_authentication_everything_is_let_in() -> None:
    assert verified_by(NO_AUTH, {}, BODY, NOW) == "none"


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


SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow"
    b"&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner"
    b"&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands"
    b"%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
    b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)


def test_the_vector_that_slack_publishes_is_genuine() -> None:
    headers = {
        "x-slack-request-timestamp": "1531420618",
        "x-slack-signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    }
    secret = "8f742231b10e8888abcd99yyyzzz85a5"
    assert verified_by(secret, headers, SLACK_BODY, 1_531_420_618.0) == "slack"
    assert verified_by(secret, headers, SLACK_BODY, 1_531_420_618.0 + 301) is None


def test_a_stripe_secret_is_text_and_several_signatures_may_come() -> None:
    right = genuine()["stripe"][1]["stripe-signature"]
    check_secret(STRIPE_SECRET, SCHEMES["stripe"])
    time, signature = right.split(",")
    several = {"stripe-signature": f"{time},v1=00,{signature},v0=anything"}
    assert verified_by(STRIPE_SECRET, several, BODY, NOW) == "stripe"
    weaker = {"stripe-signature": f"{time},{signature.replace('v1', 'v0')}"}
    assert verified_by(STRIPE_SECRET, weaker, BODY, NOW) is None


def test_the_id_of_a_stripe_event_is_in_its_body() -> None:
    body = b'{"id": "evt_1", "type": "invoice.paid"}'
    ids = {
        identity(SCHEMES["stripe"], sign(SCHEMES["stripe"], "s", time, body), body)[0]
        for time in (1, 2)
    }
    assert ids == {"evt_1"}


@pytest.mark.parametrize("late", [61, -61])
def test_the_time_of_linear_is_in_its_body(late: int) -> None:
    secret, headers = genuine()["linear"]
    assert verified_by(secret, headers, BODY, NOW + late) is None
    timeless = b'{"action": "opened"}'
    assert verified_by(secret, {"linear-signature": mac(timeless)}, timeless, NOW) is None


@pytest.mark.parametrize("name", [name for name in SCHEMES if name != "linear"])
def test_what_is_signed_here_is_verified_here(name: str) -> None:
    headers = sign(SCHEMES[name], SECRET, int(NOW), BODY, "d-1")
    assert verified_by(SECRET, headers, BODY, NOW) == name


def test_a_scheme_of_ones_own() -> None:
    own = SignatureScheme(
        header="X-Acme-Sig",
        algorithm="sha512",
        encoding="base64",
        signed="{id}|{timestamp}|{body}",
        prefix="a1:",
        timestamp="X-Acme-Time",
        tolerance=10,
        id="X-Acme-Id",
        key="hex",
    )
    scheme = scheme_of(own)
    assert scheme is not None
    signed = hmac.new(b"\x01\x02", b"d-1|1614265330|" + BODY, hashlib.sha512).digest()
    headers = {
        "x-acme-sig": f"a1:{base64.b64encode(signed).decode()}",
        "x-acme-time": "1614265330",
        "x-acme-id": "d-1",
    }
    assert verified_by("0102", headers, BODY, NOW, scheme) == "custom"
    assert identity(scheme, headers, BODY) == ("d-1", None)
    assert verified_by("0102", headers, BODY, NOW + 11, scheme) is None
    assert verified_by("0102", headers | {"x-acme-id": "d-2"}, BODY, NOW, scheme) is None
    assert verified_by("0102", headers, BODY, NOW) is None
    with pytest.raises(ConfigError):
        check_secret("not hex", scheme)


def test_only_the_scheme_of_the_route_counts() -> None:
    secret, headers = genuine()["github"]
    assert verified_by(secret, headers, BODY, NOW, SCHEMES["slack"]) is None
    assert verified_by(secret, headers, BODY, NOW, SCHEMES["github"]) == "github"


@pytest.mark.parametrize(
    "written",
    [
        "acme",
        SignatureScheme(header="x", signed="{timestamp}"),
        SignatureScheme(header="x", signed="{url}{body}"),
        SignatureScheme(header="x", signed="{timestamp}.{body}"),
    ],
)
def test_a_scheme_that_cannot_work_is_a_mistake_in_the_configuration(
    written: str | SignatureScheme,
) -> None:
    with pytest.raises(ConfigError):
        scheme_of(written)
