"""What is computed asks, and says so; what is static is judged, wherever it stands."""

import pytest

from fakes.command_corpus import strict_policy
from hermes.domain.approvals import Gate

POLICY = strict_policy()


@pytest.mark.parametrize(
    "command",
    [
        "git -C . push --force",
        "git --no-pager -c color.ui=never push -f",
        "git --git-dir x reset --hard",
        "docker --context x rm -f web",
        "docker --log-level debug system prune",
        "docker compose -p x -f y.yml down",
        "kubectl -n prod delete pod x",
        "kubectl --context prod delete pod x",
        "helm -n x uninstall y",
        "systemctl -H host stop x",
        "systemctl --user --no-block restart x",
        "npm --prefix web publish",
        "terraform -chdir=infra destroy",
        "aws --profile p s3 rm s3://x",
        "gcloud --project x compute instances delete y",
        "apt-get -o X=y remove z",
        "python3 -m pip uninstall x",
    ],
)
def test_a_global_option_does_not_hide_the_verb(command: str) -> None:
    assert POLICY.judge(command).gate == Gate.ASK


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("git $X", "computed"),
        ("git push $X", "computed"),
        ("docker $X web", "computed"),
        ("$X --now", "computed"),
        ('bash -c "ls $X"', "nobody can see"),
        ('eval "echo $X"', "nobody can see"),
        ("bash <&5", "nobody can see"),
        ("source /dev/fd/7", "nobody can see"),
        ("curl x | tee >(bash)", "from the network"),
        ("exec < <(curl x); sh", "from the network"),
        ("ssh host $X", "what ssh would run is computed"),
        ("env -S $X", "computed"),
        ('trap "$(cat x)" EXIT', "what trap would run is computed"),
        ("IFS=,; x=rm,-r,y; $x", "computed"),
        ('python3 -c "print($X)"', "computed"),
        ("python3 -c 'import unheard_of'", "module unheard_of"),
        ("node -e 'process.exit()'", "node program"),
        ("perl -pe 's/a/b/e' x", "perl program"),
        ("unheard-of --run 'rm -rf /'", "never run"),
    ],
)
def test_a_question_about_something_computed_says_what_is(command: str, reason: str) -> None:
    verdict = POLICY.judge(command)
    assert verdict.gate == Gate.ASK
    assert reason in verdict.reason.lower()


@pytest.mark.parametrize(
    "command",
    [
        'git commit -m "$MESSAGE"',
        'git checkout "$BRANCH"',
        "git log $RANGE",
        'docker run --rm -v "$(pwd)":/w golang go build',
        'kubectl logs "$POD"',
        'rm "$file"',
        "kill $PID",
        'ssh host "ls $DIR"',
        "bash -c 'echo \"$1\"' _ x",
        'for f in *.txt; do mv "$f" "${f%.txt}.md"; done',
        "awk '/a|b/ {print $1/NR}' \"$file\"",
        'sed -i "s/@VERSION@/$VERSION/" x',
        "tmux send-keys -t work 'npm start' Enter",
        'gh pr create --title "remove delete" --body "rm -rf x"',
        "python3 -m pip install x",
        "python3 -c 'import pandas as pd; print(pd.__version__)'",
    ],
)
def test_a_value_where_it_can_do_no_harm_does_not_ask(command: str) -> None:
    assert POLICY.judge(command).gate == Gate.ALLOW


def test_a_grant_for_one_part_of_a_program_does_not_cover_another() -> None:
    pattern = POLICY.judge("python3 -c 'import unheard_of'").pattern
    more = "python3 -c 'import unheard_of, ctypes'"
    assert POLICY.judge("python3 -c 'import unheard_of'", grants={pattern}).gate == Gate.ALLOW
    assert POLICY.judge(more, grants={pattern}).gate == Gate.ASK


def test_a_pipeline_that_nobody_would_read_asks() -> None:
    assert POLICY.judge("|".join(["cat"] * 500)).gate == Gate.ASK
    assert POLICY.judge("|".join(["cat"] * 20)).gate == Gate.ALLOW
