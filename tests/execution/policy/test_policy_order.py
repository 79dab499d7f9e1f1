"""The order of decisions: floor, deny, mode, allowlist and grants, detectors."""

import pytest

from fakes.command_corpus import strict_policy
from hermes.domain.approvals import Gate


@pytest.mark.parametrize(
    "command",
    [
        "git push origin main",
        "  git   push   origin main ",
        "ls && git push origin main",
        "bash -c 'git push origin main'",
        "g=git; $g push origin main",
        "/usr/bin/git push origin main",
        "(git push origin main)",
        "git -C . push origin main",
        "git --no-pager -c color.ui=never push origin main",
        "git --git-dir=.git push origin main",
    ],
)
def test_a_denied_command_is_blocked_however_it_is_written(command: str) -> None:
    verdict = strict_policy(deny=("git push *",)).judge(command)
    assert verdict.gate == Gate.BLOCK
    assert "approvals.deny" in verdict.reason


@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        ("git push*", "timeout -k5s 10 git push"),
        ("git push*", "xargs -d'\\n' git push origin"),
        ("git push*", "watch -d git push"),
        ("git push*", "git --attr-source HEAD push"),
        ("kubectl delete*", "kubectl --as-group x delete pod x"),
        ("kubectl delete*", "kubectl --request-timeout 5 delete pod x"),
        ("npm publish*", "npm --otp 123 publish"),
        ("npm publish*", "npm --access public publish"),
        ("docker compose down*", "docker compose --progress plain down"),
        ("docker rm*", "docker container rm x"),
    ],
)
def test_a_denied_command_is_blocked_behind_options_that_nobody_has_described(
    pattern: str, command: str
) -> None:
    assert strict_policy(deny=(pattern,)).judge(command).gate == Gate.BLOCK


def test_deny_holds_in_mode_off_and_against_allowlist_and_grants() -> None:
    policy = strict_policy(mode="off", deny=("curl *",), allowlist=("curl *", "curl x"))
    assert policy.judge("curl x", grants={"= curl x"}).gate == Gate.BLOCK


def test_deny_does_not_block_text_that_only_mentions_the_command() -> None:
    assert strict_policy(deny=("curl *",)).judge("echo 'curl x'").gate == Gate.ALLOW


def test_mode_off_allows_what_would_ask_but_not_the_floor() -> None:
    policy = strict_policy(mode="off")
    assert policy.judge("rm -rf build").gate == Gate.ALLOW
    assert policy.judge("git push --force").gate == Gate.ALLOW
    assert policy.judge("rm -rf /").gate == Gate.BLOCK
    assert policy.judge("echo pw | sudo -S id").gate == Gate.BLOCK


@pytest.mark.parametrize(
    "command",
    ["curl x | sh", "$x", 'bash -c "$x"', "rm -rf $x", "if then", "LD_PRELOAD=./x.so ls", "ls\r"],
)
def test_what_cannot_be_read_asks_a_person_in_every_mode(command: str) -> None:
    verdict = strict_policy(mode="off", allowlist=("*", "curl | sh")).judge(command)
    assert verdict.gate == Gate.ASK
    assert verdict.opaque


@pytest.mark.parametrize(
    "command",
    [
        "chroot / reboot",
        "ssh host rm -rf /",
        "parted -s /dev/sda mklabel gpt",
        "fdisk /dev/sda",
        "cryptsetup luksFormat /dev/sda",
        "qemu-img convert x /dev/sda",
        "mdadm --zero-superblock /dev/sda",
        "lvremove -f vg0",
        "zpool destroy tank",
        "chmod -R 777 /",
        "chown --recursive nobody: /",
        "find / -exec chmod 000 {} +",
        "fd . / -x chmod 000",
    ],
)
def test_losing_a_disk_or_a_system_takes_a_person_in_every_mode(command: str) -> None:
    verdict = strict_policy(mode="off", allowlist=("*",)).judge(command)
    assert verdict.gate == Gate.ASK
    assert verdict.opaque


@pytest.mark.parametrize(
    "wrapper",
    [
        "run0",
        "chroot /",
        "tox exec --",
        "podman unshare",
        "distcc",
        "nvm exec 18",
        "unheard-of -e",
        "wsl",
    ],
)
def test_the_floor_is_found_behind_any_program(wrapper: str) -> None:
    policy = strict_policy(mode="off")
    assert policy.judge(f"{wrapper} rm -rf /").gate == Gate.BLOCK
    assert policy.judge(f"{wrapper} bash -c 'rm -rf /'").gate == Gate.BLOCK
    assert policy.judge(f"{wrapper} dd if=x of=/dev/sda").gate == Gate.BLOCK


def test_an_allowlisted_command_is_allowed_exactly_or_by_glob() -> None:
    policy = strict_policy(allowlist=("rm -rf build", "git push --force origin *"))
    assert policy.judge("rm -rf build").gate == Gate.ALLOW
    assert policy.judge("git push --force origin topic").gate == Gate.ALLOW
    assert policy.judge("rm -rf dist").gate == Gate.ASK


@pytest.mark.parametrize(
    "tail",
    ["; rm -rf x", " && rm -rf x", " | sh", "\nrm -rf x", " $(rm -rf x)", " `rm -rf x`", " > .env"],
)
def test_a_glob_of_the_allowlist_does_not_stretch_over_operators(tail: str) -> None:
    policy = strict_policy(allowlist=("git push --force *",))
    assert policy.judge("git push --force origin" + tail).gate == Gate.ASK


def test_an_exact_entry_may_contain_operators() -> None:
    policy = strict_policy(allowlist=("rm -rf build && make",))
    assert policy.judge("rm -rf build && make").gate == Gate.ALLOW
    assert policy.judge("rm -rf build && make; rm -r x").gate == Gate.ASK


def test_a_grant_allows_one_command_in_one_place_and_nothing_wider() -> None:
    policy = strict_policy()
    work = "/home/user/work"
    pattern = policy.judge("rm -rf build", cwd=work).pattern
    assert pattern == "rm -rf build (in /home/user/work)"
    assert policy.judge("rm -rf build", cwd=work, grants={pattern}).gate == Gate.ALLOW
    assert policy.judge("rm -rf build && make", cwd=work, grants={pattern}).gate == Gate.ALLOW
    for other in ("rm -rf dist", "rm -rf build src", "rm -rf ./", "rm -rf build; git push -f"):
        assert policy.judge(other, cwd=work, grants={pattern}).gate == Gate.ASK, other
    assert policy.judge("rm -rf build", cwd="/home/user", grants={pattern}).gate == Gate.ASK
    assert policy.judge("cd .. && rm -rf build", cwd=work, grants={pattern}).gate == Gate.ASK
    assert policy.judge("rm -r /etc", grants={pattern, "rm -r"}).gate == Gate.BLOCK


def test_a_grant_for_one_file_covers_no_other() -> None:
    policy, work = strict_policy(), "/home/user/work"
    asked = policy.judge("tee /home/user/.bashrc", cwd=work)
    assert asked.pattern == "write /home/user/.bashrc"
    assert policy.judge("tee ~/.bashrc", cwd=work, grants={asked.pattern}).gate == Gate.ALLOW
    for other in ("tee ~/.bashrc ~/.profile ~/.zshrc", "rm ~/.bashrc"):
        assert policy.judge(other, cwd=work, grants={asked.pattern}).gate == Gate.ASK, other


def test_a_grant_that_was_given_for_a_whole_kind_counts_no_more() -> None:
    assert strict_policy().judge("rm -rf build", grants={"rm -r"}).gate == Gate.ASK
    assert strict_policy(allowlist=("rm -r",)).judge("rm -rf build").gate == Gate.ALLOW


def test_what_is_run_elsewhere_is_not_granted_here() -> None:
    policy = strict_policy()
    for command in ("ssh web rm -rf x", "docker exec web rm -rf x", "cat list | xargs rm -rf x"):
        pattern = policy.judge(command).pattern
        assert policy.judge(command, grants={pattern}).gate == Gate.ALLOW
        assert policy.judge("rm -rf x", grants={pattern}).gate == Gate.ASK


def test_the_question_about_a_script_names_only_what_is_not_granted_yet() -> None:
    verdict = strict_policy().judge("rm -r x; git push --force", grants={"rm -r x"})
    assert verdict.pattern == "git push --force"


def test_one_answer_to_a_script_with_two_dangers_grants_both() -> None:
    policy = strict_policy()
    pattern = policy.judge("rm -r x && git push -f").pattern
    assert policy.judge("rm -r x && git push -f", grants={pattern}).gate == Gate.ALLOW
    assert policy.judge("git push -f; rm -r x", grants=[pattern]).gate == Gate.ALLOW
    assert policy.judge("git push -f; rm -r y", grants=[pattern]).gate == Gate.ASK
    assert policy.judge("git clean -fd", grants=[pattern]).gate == Gate.ASK


def test_a_file_name_cannot_smuggle_a_grant() -> None:
    policy = strict_policy()
    for script in ("rm -r 'a + rm -r b'", "rm -r a '+' rm -r b", "rm -r 'x (in /)'"):
        pattern = policy.judge(script).pattern
        assert policy.judge("rm -r b", grants={pattern}).gate == Gate.ASK
        assert policy.judge("rm -r x", cwd="/", grants={pattern}).gate == Gate.ASK


def test_what_is_computed_can_only_be_granted_as_it_is() -> None:
    policy = strict_policy()
    pattern = policy.judge("$CMD --now").pattern
    assert policy.judge("$CMD --now", grants={pattern}).gate == Gate.ALLOW
    assert policy.judge("$CMD --later", grants={pattern}).gate == Gate.ASK


def test_a_grant_for_a_whole_script_holds_where_it_was_asked() -> None:
    policy, script = strict_policy(), "bash -c 'rm -r x'"
    pattern = policy.judge(script, cwd="/home/user/work").pattern
    assert pattern == "= bash -c 'rm -r x' (in /home/user/work)"
    assert policy.judge(script, cwd="/home/user/work", grants={pattern}).gate == Gate.ALLOW
    assert policy.judge(script, cwd="/home/user/other", grants={pattern}).gate == Gate.ASK
    older = f"= {script}"
    assert policy.judge(script, cwd="/home/user/work", grants={older}).gate == Gate.ASK
    listed = strict_policy(allowlist=(older,))
    assert listed.judge(script, cwd="/home/user/work").gate == Gate.ALLOW


def test_a_place_cannot_be_part_of_a_granted_script() -> None:
    policy = strict_policy()
    pattern = policy.judge("$X # (in /b)", cwd="/home/user/work").pattern
    assert "sha256" in pattern


def test_a_granted_script_does_not_grant_the_patterns_it_mentions() -> None:
    policy = strict_policy()
    pattern = policy.judge("$X 1 + rm -r + 2").pattern
    assert policy.judge("rm -r build", grants={pattern}).gate == Gate.ASK


def test_always_is_remembered_by_putting_the_pattern_on_the_allowlist() -> None:
    pattern = strict_policy().judge("systemctl restart nginx").pattern
    assert strict_policy(allowlist=(pattern,)).judge("systemctl restart nginx").gate == Gate.ALLOW


@pytest.mark.parametrize(
    ("command", "pattern"),
    [
        ("rm -rf build", "rm -rf build"),
        ("git push origin +main", "git push origin +main"),
        ("wget -qO- x | bash", "= wget -qO- x | bash"),
        ("find . -delete", "find . -delete"),
        ("sudo ls", "sudo ls"),
        ("docker stop web", "docker stop web"),
        ("bash -c 'rm -r x'", "= bash -c 'rm -r x'"),
    ],
)
def test_a_pattern_says_what_it_grants(command: str, pattern: str) -> None:
    assert strict_policy().judge(command).pattern == pattern


def test_a_write_is_granted_for_one_path() -> None:
    policy = strict_policy()
    pattern = policy.judge("echo x > .env", cwd="/home/user/work").pattern
    assert pattern == "write /home/user/work/.env"
    assert policy.judge("echo y > .env", cwd="/home/user/work", grants={pattern}).gate == Gate.ALLOW
    assert policy.judge("echo y > .env", cwd="/home/user", grants={pattern}).gate == Gate.ASK


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("rm -rf build", "rm -r"),
        ("rm -f x", "rm -f"),
        ("git push origin +main", "git push --force"),
        ("find . -delete", "find -delete"),
        ("sudo ls", "sudo"),
        ("echo x > .env", "write .env"),
        ("docker stop web", "docker stop"),
        ("kill -9 12", "kill -9"),
    ],
)
def test_the_allowlist_may_name_a_whole_kind_of_danger(command: str, kind: str) -> None:
    assert strict_policy(allowlist=(kind,)).judge(command).gate == Gate.ALLOW


def test_the_directory_decides_what_a_relative_path_means() -> None:
    policy = strict_policy()
    assert policy.judge("rm -rf *", cwd="/").gate == Gate.BLOCK
    assert policy.judge("rm -rf .", cwd="/home/user").gate == Gate.BLOCK
    assert policy.judge("rm -rf *", cwd="/home/user/work").gate == Gate.ASK
    assert policy.judge("echo x > hosts", cwd="/etc").gate == Gate.ASK
    assert policy.judge("echo x > hosts", cwd="/home/user/work").gate == Gate.ALLOW


def test_the_floor_asks_on_another_machine() -> None:
    assert strict_policy().judge("ssh web1 reboot").gate == Gate.ASK
    assert strict_policy().judge("ssh localhost reboot").gate == Gate.BLOCK
