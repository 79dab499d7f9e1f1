"""What is wrong in the configuration of a backend is said as such."""

import pytest

from fakes.machines import environment
from hermes.domain.errors import ConfigError
from hermes.execution.backends.sandbox import backend as sandbox

# What each must have to get as far as its options.
NEEDED = {"ssh_host": "h", "DAYTONA_API_KEY": "k"}


@pytest.mark.parametrize(
    ("backend", "option"),
    [
        ("docker", "max_processes"),
        pytest.param(
            "sandbox",
            "max_processes",
            marks=pytest.mark.skipif(bool(sandbox.unavailable()), reason="no sandboxes here"),
        ),
        ("ssh", "max_sessions"),
        ("singularity", "start_timeout"),
        ("modal", "lifetime"),
        ("daytona", "auto_stop"),
    ],
)
@pytest.mark.usefixtures("modal_sdk")
async def test_an_option_of_the_wrong_kind_is_named(backend: str, option: str) -> None:
    with pytest.raises(ConfigError) as caught:
        async with environment(backend, {**NEEDED, option: "soon"}):
            pass
    assert caught.value.message.startswith(
        f"The {backend} backend cannot be set up as configured: "
    )
    assert option in caught.value.message
    assert "`terminal.backend_options`" in caught.value.hint
