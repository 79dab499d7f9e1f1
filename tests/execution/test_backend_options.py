"""What is wrong in the configuration of a backend is said as such."""

import pytest

from fakes.machines import environment
from hermes.domain.errors import ConfigError
from hermes.execution.backends.sandbox import backend as sandbox


@pytest.mark.parametrize(
    ("backend", "who"),
    [
        ("docker", "Containers"),
        pytest.param(
            "sandbox",
            "The sandbox",
            marks=pytest.mark.skipif(bool(sandbox.available()), reason="no sandboxes here"),
        ),
        ("ssh", "The ssh backend"),
        ("singularity", "The singularity backend"),
        ("modal", "The modal backend"),
        ("daytona", "The daytona backend"),
    ],
)
async def test_an_option_of_the_wrong_kind_is_named(backend: str, who: str) -> None:
    options = {"sandbox_dir": "/s", "hermes_home": "/h", "image": "i", "kill_grace": "soon"}
    with pytest.raises(ConfigError) as caught:
        async with environment(backend, options):
            pass
    assert caught.value.message.startswith(f"{who} cannot be set up as configured: ")
    assert "kill_grace" in caught.value.message
    assert "`terminal`" in caught.value.hint
