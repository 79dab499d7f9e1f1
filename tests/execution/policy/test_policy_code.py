"""Programs for the execute_code tool are judged by what they call."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.command_corpus import strict_policy
from hermes.domain.approvals import Gate, Verdict

POLICY = strict_policy()


@pytest.mark.parametrize(
    "source",
    [
        "print(1)",
        "import json\nprint(json.dumps({'rm -rf /': 1}))",
        "from hermes_tools import terminal\nprint(terminal('ls'))",
        "import os\nprint(os.path.join('a', 'b'), os.environ.get('HOME'))",
        "with open('out.txt', 'w') as f:\n    f.write('x')",
        "data = open('/etc/hosts').read()",
        "from pathlib import Path\nPath('out').write_text('x')",
        "x = [i for i in range(3)]\nx.remove(1)\nd = {}\nd.pop('a', None)",
        "import re\nre.compile('x')",
        "class A:\n    def system(self):\n        return 1\nA().system()",
    ],
)
def test_ordinary_programs_are_allowed(source: str) -> None:
    assert POLICY.judge_code("python", source).gate == Gate.ALLOW


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.system('ls')",
        "import subprocess\nsubprocess.run(['ls'])",
        "from subprocess import run as go\ngo('ls', shell=True)",
        "import shutil\nshutil.rmtree('build')",
        "import os\nlist(map(os.remove, ['a']))",
        "f = __import__('os').remove\nf('x')",
        "from pathlib import Path\nPath('x').unlink()",
        "import socket",
        "import ctypes",
        "exec('print(1)')",
        "eval(input())",
        "import importlib\nimportlib.import_module('o' + 's')",
        "import os\ngetattr(os, 'sys' + 'tem')('ls')",
        "import os\ngetattr(os, input())('ls')",
        "().__class__.__base__.__subclasses__()",
        "open('/etc/hosts', 'w')",
        "open('/home/user/.ssh/authorized_keys', 'a')",
        "from os import *\nsystem('ls')",
        "import pickle\npickle.loads(b'')",
        "import os\nos.kill(1, 9)",
        "this is no Python",
        "import os\nos.execv('/bin/sh', ['sh'])",
    ],
)
def test_programs_that_reach_further_ask(source: str) -> None:
    verdict = POLICY.judge_code("python", source)
    assert verdict.gate == Gate.ASK
    assert verdict.pattern


@pytest.mark.parametrize(
    "source",
    [
        "import shutil\nshutil.rmtree('/')",
        "import os\nos.system('rm -rf /')",
        "import subprocess\nsubprocess.run(['rm', '-rf', '/home/user'])",
        "import subprocess\nsubprocess.check_call('reboot', shell=True)",
        "open('/dev/sda', 'wb')",
        "import os\nos.remove('/home/user/.hermes/state.db')",
        "import os, shutil\nshutil.rmtree(os.path.expanduser('~'))",
    ],
)
def test_the_floor_holds_for_programs_in_every_mode(source: str) -> None:
    assert strict_policy(mode="off").judge_code("python", source).gate == Gate.BLOCK


def test_shell_programs_are_judged_as_scripts() -> None:
    assert POLICY.judge_code("bash", "ls\nrm -rf /").gate == Gate.BLOCK
    assert POLICY.judge_code("bash", "ls").gate == Gate.ALLOW


def test_other_languages_are_judged_by_what_they_mention() -> None:
    assert POLICY.judge_code("node", "console.log(1)").gate == Gate.ALLOW
    assert POLICY.judge_code("node", "require('child_process').exec('ls')").gate == Gate.ASK


@given(st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_arbitrary_programs_get_a_verdict(source: str) -> None:
    assert isinstance(POLICY.judge_code("python", source), Verdict)
