from pathlib import Path
from typing import Any

import pytest

from fakes.machines import request_for
from hermes.domain.errors import ConfigError
from hermes.execution.backend import load_backend
from hermes.execution.backends.docker import DockerLink, DockerOptions, container, find_binary


def made(task: str = "s", **given: Any) -> Any:
    """Return the container for a session."""
    options = {"docker_image": "i", "home": "/h", **given}
    return container(request_for("docker", options, session_id=task), Path("/b"), 256)


def program(directory: Path, name: str) -> str:
    path = directory / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_docker_is_preferred_to_podman_and_a_named_program_to_both(tmp_path: Path) -> None:
    podman = program(tmp_path, "podman")
    own = program(tmp_path, "own-engine")
    assert find_binary("podman", str(tmp_path)) == podman
    assert find_binary(own, str(tmp_path)) == own
    docker_program = program(tmp_path, "docker")
    assert find_binary("", str(tmp_path)) == docker_program


async def test_a_program_that_is_not_there_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="docker or podman"):
        await load_backend("docker").open(request_for("docker", {"binary": "no-such-engine"}))


def test_a_container_is_named_after_home_session_and_settings() -> None:
    assert made().name == made().name
    names = {made().name, made("t").name, made(docker_image="j").name, made(home="/other").name}
    assert len(names) == 4


def test_values_of_forwarded_variables_are_not_on_the_command_line() -> None:
    request = request_for("docker", {"docker_forward_env": ("TOKEN",)}, base_env={"TOKEN": "xyz-1"})
    spec = container(request, Path("/b"), 256)
    assert "xyz-1" not in " ".join(spec.arguments)
    assert spec.environment == {"TOKEN": "xyz-1"}


def test_the_network_is_on_only_if_asked() -> None:
    def network(*, on: bool) -> str:
        arguments = made(docker_network=on).arguments
        return str(arguments[arguments.index("--network") + 1])

    assert (network(on=True), network(on=False)) == ("bridge", "none")


def test_options_nobody_knows_are_named() -> None:
    with pytest.raises(ConfigError, match="nonsense"):
        request_for("docker", {"nonsense": 1}).options(DockerOptions)


def test_no_value_of_a_variable_is_on_the_command_line() -> None:
    """Every user of the machine may read the arguments of a process."""
    spec = made(docker_env={"DB_PASS": "xyz-2"})
    assert "xyz-2" not in " ".join(spec.arguments)
    assert spec.environment == {"DB_PASS": "xyz-2"}


@pytest.mark.parametrize(
    ("given", "exposed"),
    [
        ({}, ()),
        ({"docker_volumes": ("/srv/data:/data",)}, ("/data",)),
        ({"docker_volumes": ("/srv/data:/data:ro", "cache:/cache")}, ()),
        ({"docker_volumes": ("/var/run/docker.sock:/var/run/docker.sock:ro",)}, ("/",)),
        ({"docker_volumes": ("/:/host",)}, ("/",)),
        ({"docker_extra_args": ("--privileged",)}, ("/",)),
        ({"docker_extra_args": ("--pid=host",)}, ("/",)),
        ({"docker_extra_args": ("-v", "/home/me:/me")}, ("/",)),
        ({"docker_extra_args": ("--cpus=2", "--label", "a=b")}, ()),
    ],
)
def test_what_a_container_exposes_is_a_matter_of_its_mounts(
    tmp_path: Path, given: dict[str, Any], exposed: tuple[str, ...]
) -> None:
    options = {"binary": program(tmp_path, "docker"), "home": str(tmp_path), **given}
    assert DockerLink(request_for("docker", options)).exposed == exposed
