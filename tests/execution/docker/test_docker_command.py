from pathlib import Path

import pytest

from hermes.domain.errors import ConfigError
from hermes.execution.backend import decode_options
from hermes.execution.backends.docker import backend as docker
from hermes.execution.backends.docker.command import (
    DockerOptions,
    container_spec,
    guarded,
    list_arguments,
)
from hermes.execution.backends.docker.engine import Engine, find_binary


def options(**given: object) -> DockerOptions:
    required = {"sandbox_dir": "/h/s", "hermes_home": "/h", "image": "i"}
    return decode_options(DockerOptions, {**required, **given}, "Containers")


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


def test_a_program_that_is_not_there_is_a_config_error(tmp_path: Path) -> None:
    assert "apt install docker.io" in docker.available("no-such-engine")
    with pytest.raises(ConfigError, match="docker or podman"):
        Engine(options(binary="no-such-engine"), {"PATH": str(tmp_path)})


def test_docker_and_podman_get_the_same_command_lines(tmp_path: Path) -> None:
    for name in ("docker", "podman"):
        program(tmp_path, name)
    made = [options(binary=name) for name in ("docker", "podman")]
    specs = [container_spec(each, Path("/h/s/x"), "main.s", {}) for each in made]
    assert specs[0] == specs[1]
    assert list_arguments(made[0]) == list_arguments(made[1])
    lines = [
        guarded((name, "c"), "true", "/run/hermes/pid.1", room=9, pty=False, grace=1.0)
        for name in ("docker", "podman")
    ]
    assert tuple(part.replace("docker", "podman") for part in lines[0]) == lines[1]


def test_a_container_is_named_after_home_session_and_settings() -> None:
    def name(task: str = "main.s", **given: object) -> str:
        return container_spec(options(**given), Path("/h/s/x"), task, {}).name

    assert name() == name()
    assert len({name(), name("main.t"), name(image="j"), name(hermes_home="/other")}) == 4


def test_values_of_forwarded_variables_are_not_on_the_command_line() -> None:
    spec = container_spec(options(), Path("/b"), "t", {"TOKEN": "secret-value"})
    assert "secret-value" not in " ".join(spec.arguments)
    assert spec.environment == {"TOKEN": "secret-value"}


def test_the_network_is_on_only_if_asked() -> None:
    def network(**given: object) -> str:
        arguments = container_spec(options(**given), Path("/b"), "t", {}).arguments
        return arguments[arguments.index("--network") + 1]

    assert (network(network=True), network(network=False)) == ("bridge", "none")


def test_options_nobody_knows_are_named() -> None:
    with pytest.raises(ConfigError, match="nonsense"):
        options(nonsense=1)
