from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.toolbox import local_environment
from hermes.domain.ports.execution import CommandResult, ShellRun
from hermes.execution.backends.local import LocalEnvironment


@pytest.fixture
async def shell(tmp_path: Path) -> AsyncIterator[LocalEnvironment]:
    (tmp_path / "sub dir").mkdir()
    async with local_environment(tmp_path) as environment:
        yield environment


async def sh(environment: LocalEnvironment, script: str) -> CommandResult:
    return await environment.run(ShellRun(script=script, timeout=20))


async def test_directory_and_exports_carry_over(shell: LocalEnvironment, tmp_path: Path) -> None:
    await sh(shell, "cd 'sub dir'; export GREETING='a b\n\"$x\" `y`'; local_only=1")
    result = await sh(shell, 'pwd; printf "%s|" "$GREETING" "${local_only-unset}"')
    assert result.output == f'{tmp_path}/sub dir\na b\n"$x" `y`|unset|'
    assert result.cwd == shell.cwd == f"{tmp_path}/sub dir"


async def test_functions_carry_over(shell: LocalEnvironment) -> None:
    await sh(shell, 'greet() { echo "hello $1"; }')
    assert (await sh(shell, "greet you")).output == "hello you\n"


async def test_a_variable_that_was_unset_stays_unset(shell: LocalEnvironment) -> None:
    await sh(shell, "unset HOME")
    assert (await sh(shell, "echo ${HOME-gone}")).output == "gone\n"


async def test_cd_dash_means_the_previous_directory_of_the_session(
    shell: LocalEnvironment, tmp_path: Path
) -> None:
    await sh(shell, "cd 'sub dir'")
    assert (await sh(shell, "cd -")).cwd == str(tmp_path)


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("export KEPT=1; cd 'sub dir'; exit 3", 3),
        ("export KEPT=1; cd 'sub dir'; set -e; false; echo no", 1),
        ("trap 'true' EXIT; export KEPT=1; cd 'sub dir'", 0),
        ("set -aeuC; export KEPT=1; cd 'sub dir'", 0),
        ("export KEPT=1; cd 'sub dir'; kill $$; sleep 5", 143),
    ],
)
async def test_state_survives_however_the_command_ends(
    shell: LocalEnvironment, script: str, code: int
) -> None:
    assert (await sh(shell, script)).exit_code == code
    after = await sh(shell, 'basename "$PWD"; echo "$KEPT"; env | grep -c __hermes')
    assert after.output == "sub dir\n1\n0\n"


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("cd 'sub dir'; exec true", 0),
        ("cd 'sub dir'; kill -9 $$", 137),
        ("echo 'unterminated", 2),
        ("if then fi", 2),
        ("f() {", 2),
        ("(exit 7)", 7),
    ],
)
async def test_commands_that_leave_no_state_leave_the_previous_one(
    shell: LocalEnvironment, script: str, code: int, tmp_path: Path
) -> None:
    await sh(shell, "export BEFORE=yes")
    assert (await sh(shell, script)).exit_code == code
    assert (await sh(shell, "pwd; echo $BEFORE")).output == f"{tmp_path}\nyes\n"


@pytest.mark.parametrize(
    "script", ["set -x; cd /", "set -v; cd /", "echo 'open", "exit )", "set -x; exit 4"]
)
async def test_nothing_of_the_saving_shows_in_the_output(
    shell: LocalEnvironment, script: str
) -> None:
    result = await sh(shell, script)
    assert "hermes" not in result.output
    assert "export -p" not in result.output


async def test_line_numbers_in_messages_are_those_of_the_script(shell: LocalEnvironment) -> None:
    assert "line 2: nosuchcommand" in (await sh(shell, "true\nnosuchcommand")).output


async def test_a_directory_that_vanished_falls_back_to_the_start(
    shell: LocalEnvironment, tmp_path: Path
) -> None:
    await sh(shell, "cd 'sub dir'; rmdir \"$PWD\"")
    assert (await sh(shell, "pwd")).output == f"{tmp_path}\n"


async def test_a_given_directory_and_given_variables_are_for_one_command_only(
    shell: LocalEnvironment, tmp_path: Path
) -> None:
    await sh(shell, "export A=old")
    once = await shell.run(ShellRun(script="echo $A $PWD", cwd="/", env={"A": "new; $x"}))
    assert once.output == "new; $x /\n"
    assert once.cwd == str(tmp_path)
    assert (await sh(shell, "echo $A")).output == "old\n"


async def test_a_given_directory_that_does_not_exist_is_an_error(shell: LocalEnvironment) -> None:
    result = await shell.run(ShellRun(script="touch made", cwd="/no/such/place"))
    assert result.exit_code == 1
    assert "No such file" in result.output


async def test_scripts_longer_than_an_argument_may_be_run(shell: LocalEnvironment) -> None:
    result = await sh(shell, f"text='{'x' * 400_000}'\nexport N=${{#text}}; echo $N")
    assert result.output == "400000\n"
    assert (await sh(shell, "echo $N")).output == "400000\n"
    failing = await sh(shell, f": {'x' * 100_000}\nnosuchcommand")
    assert failing.output == "bash: line 2: nosuchcommand: command not found\n"
    assert failing.exit_code == 127


async def test_state_is_kept_over_many_commands_that_save_none(shell: LocalEnvironment) -> None:
    await sh(shell, "export BEFORE=yes")
    for _ in range(20):
        await sh(shell, "exec true")
    assert (await sh(shell, "echo $BEFORE")).output == "yes\n"


async def test_closing_removes_the_state_and_a_later_command_starts_where_it_was(
    shell: LocalEnvironment,
) -> None:
    await sh(shell, "cd /usr; export A=1")
    await shell.close()
    assert (await sh(shell, "echo $PWD ${A-none}")).output == "/usr none\n"


async def test_more_functions_than_a_command_can_carry_are_not_kept(
    shell: LocalEnvironment, tmp_path: Path
) -> None:
    await sh(shell, "cd 'sub dir'; export KEPT=1; f() { echo hi; }")
    many = 'for i in {1..9000}; do eval "f$i() { echo a function named $i; }"; done'
    await sh(shell, many)
    result = await sh(shell, 'echo "$KEPT"; declare -F | wc -l; pwd')
    assert result.output.split() == ["1", "0", f"{tmp_path}/sub", "dir"]
