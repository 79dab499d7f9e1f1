"""Programs for the execute_code tool are judged by what they call."""

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.command_corpus import strict_policy
from hermes.domain.approvals import Gate, Verdict
from hermes.execution.policy.judge import CommandPolicy

POLICY = strict_policy()


def judge(source: str, policy: CommandPolicy = POLICY) -> Verdict:
    """Judge a program the way a call of execute_code is judged."""
    return policy.judge(f"python3 -c {shlex.quote(source)}")


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
    assert judge(source).gate == Gate.ALLOW


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
    verdict = judge(source)
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
    assert judge(source, strict_policy(mode="off")).gate == Gate.BLOCK


@given(st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_arbitrary_programs_get_a_verdict(source: str) -> None:
    assert isinstance(judge(source), Verdict)


@pytest.mark.parametrize(
    ("program", "gate"),
    [
        (
            "import asyncio\nasync def main():\n    await asyncio.sleep(1)\nasyncio.run(main())",
            Gate.ALLOW,
        ),
        ("import asyncio\nasyncio.create_subprocess_shell('ls')", Gate.ASK),
        ("import asyncio\nasyncio.open_connection('x.org', 80)", Gate.ASK),
        (
            "import asyncio\nt = asyncio.create_task(f())\nt.get_loop().create_connection(f)",
            Gate.ASK,
        ),
        ("from asyncio import subprocess", Gate.ASK),
        ("import asyncio, os\nasyncio.run(os.remove('x'))", Gate.ASK),
        (
            "import logging\nlogging.basicConfig(level=1)\nlogging.getLogger('x').info(1)",
            Gate.ALLOW,
        ),
        ("import logging\nlogging.basicConfig(filename='/etc/x')", Gate.ASK),
        ("import logging\nlogging.basicConfig(**o)", Gate.ASK),
        ("import logging\nlogging.FileHandler('/etc/x')", Gate.ASK),
        ("import logging\nlogging.os.remove('x')", Gate.ASK),
        ("import tempfile\nwith tempfile.TemporaryDirectory() as d:\n    print(d)", Gate.ALLOW),
        ("import tempfile\ntempfile.os.remove('x')", Gate.ASK),
        ("import tempfile\ntempfile.mkdtemp(dir='/home/user')", Gate.ASK),
        ("import tempfile\ntempfile.mkdtemp('', '', '/home/user')", Gate.ASK),
        ("from tempfile import mkdtemp\nmkdtemp(*a)", Gate.ASK),
        ("import logging\nb = logging.basicConfig\nb(filename='/etc/x')", Gate.ASK),
        ("from tempfile import mkdtemp as m\nn = m", Gate.ASK),
        ("import asyncio.subprocess", Gate.ASK),
        (
            "import sqlite3\nc = sqlite3.connect(':memory:')\nprint(c.execute('select 1'))",
            Gate.ALLOW,
        ),
        (
            "import sqlite3\nc = sqlite3.connect('a.db')\nc.execute('create table t(a)')",
            Gate.ALLOW,
        ),
        ("import sqlite3\nsqlite3.connect('/etc/a.db')", Gate.ASK),
        ("import sqlite3\nsqlite3.connect('file:/x?mode=rwc', uri=True)", Gate.ASK),
        ("import sqlite3\nsqlite3.connect(p)", Gate.ASK),
        ("import sqlite3\nopened = sqlite3.connect", Gate.ASK),
        ("from sqlite3 import connect\nconnect(p)", Gate.ASK),
        ("from sqlite3 import connect\nc = connect('../a.db')", Gate.ASK),
        ("import sqlite3 as s\nc = s.connect('a.db')\nc.execute(q)", Gate.ASK),
        ("import sqlite3\nc = sqlite3.connect('a.db')\nc.execute('drop table t')", Gate.ASK),
        (
            "import sqlite3\nc = sqlite3.connect('a.db')\nc.execute(\"attach '/x.db' as x\")",
            Gate.ASK,
        ),
        ("import sqlite3\nc = sqlite3.connect('a.db')\nmap(c.execute, qs)", Gate.ASK),
    ],
)
def test_modules_that_may_do_more_are_judged_by_what_is_used(program: str, gate: Gate) -> None:
    command = f"python3 -c {shlex.quote(program)}"
    assert strict_policy().judge(command, cwd="/home/user/work").gate is gate
