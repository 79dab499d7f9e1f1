"""Which proxy leads where."""

import pytest

from hermes.config.environment import proxy_for

OUT = "https://api.example.com/v1"


@pytest.mark.parametrize(
    ("variables", "url", "proxy"),
    [
        ({}, OUT, None),
        ({"HTTPS_PROXY": "http://p:8080"}, OUT, "http://p:8080"),
        ({"https_proxy": "http://small:1", "HTTPS_PROXY": "http://big:1"}, OUT, "http://small:1"),
        ({"HTTP_PROXY": "http://p:8080"}, OUT, None),
        ({"HTTP_PROXY": "http://p:8080"}, "http://example.com", "http://p:8080"),
        ({"ALL_PROXY": "socks5://p:1080"}, OUT, "socks5://p:1080"),
        ({"HTTPS_PROXY": "p:8080"}, OUT, "http://p:8080"),
        ({"HTTPS_PROXY": "http://p", "NO_PROXY": "example.com"}, OUT, None),
        ({"HTTPS_PROXY": "http://p", "NO_PROXY": ".example.com"}, OUT, None),
        ({"HTTPS_PROXY": "http://p", "NO_PROXY": "*.example.com"}, OUT, None),
        ({"HTTPS_PROXY": "http://p", "NO_PROXY": "ample.com"}, OUT, "http://p"),
        ({"HTTPS_PROXY": "http://p", "NO_PROXY": "other.org, *"}, OUT, None),
        ({"HTTPS_PROXY": "http://p", "NO_PROXY": "10.0.0.0/8"}, "https://10.1.2.3/x", None),
        ({"HTTPS_PROXY": "http://p", "NO_PROXY": "10.0.0.0/8"}, "https://11.1.2.3/x", "http://p"),
        ({"HTTPS_PROXY": "http://p", "NO_PROXY": "a.b:8443"}, "https://a.b:8443/", None),
        ({"HTTPS_PROXY": "http://p", "NO_PROXY": "a.b:8443"}, "https://a.b/", "http://p"),
        ({"HTTP_PROXY": "http://p"}, "http://localhost:8080/v1", None),
        ({"HTTP_PROXY": "http://p"}, "http://127.0.0.1:8080/v1", None),
        ({"HTTP_PROXY": "http://p"}, "http://[::1]:8080/v1", None),
    ],
)
def test_the_proxy_of_an_address(variables: dict[str, str], url: str, proxy: str | None) -> None:
    assert proxy_for(url, variables) == proxy
