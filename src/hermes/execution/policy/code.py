"""Reads programs in other languages: what they delete, run and reach.

Python is read with its own grammar; for the others a list of calls that
matter has to do, and the strings in such a program are judged as scripts.
"""

import re
from functools import cache

from hermes.execution.policy.calls import Danger
from hermes.execution.policy.code_python import inspect_python
from hermes.execution.policy.findings import Findings

__all__ = ["inspect_code"]


_RISKY: dict[str, str] = {
    "perl": r"\bsystem\b|\bexec\b|\bunlink\b|rmtree|remove_tree|\brmdir\b|`|\bqx\b|\bfork\b|"
    r"\bkill\b|open\s*\(?[^;]*\||IO::Socket|\bsocket\b|\beval\b|\bchmod\b|\bchown\b|\brename\b|"
    r"\bsyscall\b|open\s*\(?[^;]*['\"]\s*>|\btruncate\b|\brequire\b|LWP|HTTP::Tiny",
    "ruby": r"\bsystem\b|\bexec\b|\bspawn\b|`|%x|File\.(?:delete|unlink|write|rename|chmod)|"
    r"FileUtils|"
    r"Dir\.(?:delete|rmdir|unlink)|IO\.popen|Open3|\beval\b|TCPSocket|\bsocket\b|Process\.kill|"
    r"\bsend\b|open-uri|instance_eval|Kernel|rmtree|unlink",
    "node": r"child_process|\brm(?:dir)?(?:Sync)?\s*\(|unlink|\bexec(?:Sync|File)?\b|\bspawn|"
    r"\beval\b|"
    r"Function\s*\(|writeFile|appendFile|createWriteStream|\bnet\b|\bdgram\b|process\.kill|"
    r"\bvm\b|rename(?:Sync)?\s*\(|truncate|chmod|Deno\.(?:run|remove|Command)|Bun\.(?:spawn|\$)|"
    r"require\s*\(\s*[^'\")]|import\s*\(|process\.binding|rimraf|fs-extra",
    "php": r"\b(?:system|exec|shell_exec|passthru|popen|proc_open|pcntl_exec|unlink|rmdir|eval|"
    r"assert|fsockopen|file_put_contents|rename|chmod|chown|mail|create_function|call_user_func|"
    r"base64_decode|include|require)\b|`",
    "lua": r"os\.(?:execute|remove|rename)|io\.(?:popen|open|output)|\bload(?:string|file)?\b|"
    r"\bdofile\b|\bsocket\b",
    "awk": r"\bsystem\s*\(|\|\s*getline|\|\s*&?\s*\"|\"\s*\|\s*getline"
    r'|/inet/|>\s*"/|@load|print\s*>\s*[^"&]',
    "tcl": r"\bexec\b|\bspawn\b|\bsystem\b|file\s+delete|\bopen\s+\"?\||\bsocket\b|\beval\b",
    "r": r"\bsystem2?\s*\(|\bunlink\s*\(|file\.remove|\beval\s*\(|socketConnection|download\.file",
    "osascript": r"do\s+shell\s+script|\bdelete\b|shut\s*down|restart|empty\s+trash|keystroke",
    "powershell": r"\b(?:Remove-Item|ri|rm|del|rd|rmdir|erase|Clear-Content|Format-Volume|"
    r"Clear-Disk|Stop-Computer|Restart-Computer|Invoke-Expression|iex|Invoke-WebRequest|iwr|irm|"
    r"Start-Process|Stop-Process|Stop-Service|Set-ExecutionPolicy|DownloadString|DownloadFile|"
    r"FromBase64String|Set-Content|Out-File|New-Service|reg|schtasks|Add-Type|Invoke-Command)\b|"
    r"^[A-Za-z0-9+/=]{24,}$",
    "other": r"system|shell|exec|delete|remove|unlink|run|spawn|process|socket",
    "python": r"\bos\s*\.\s*(?:system|popen|remove|unlink|rmdir|exec|spawn|kill|chmod|chown|"
    r"rename)|"
    r"subprocess|shutil|rmtree|unlink|socket|ctypes|\bpty\b|\beval\b|\bexec\b|__import__|"
    r"importlib|marshal|pickle|base64|commands\.getoutput|popen",
}
_STRINGS = tuple(
    re.compile(pattern)
    for pattern in (
        r"'((?:[^'\\]|\\.)*)'",
        r'"((?:[^"\\]|\\.)*)"',
        r"`([^`]*)`",
        r"\bq[qwx]?\{(.*?)\}",
        r"\bq[qwx]?\((.*?)\)",
        r"\bq[qwx]?/(.*?)/",
        r"%x?\((.*?)\)",
        r"%x?[{\[](.*?)[}\]]",
    )
)
_PS_HALT = re.compile(
    r"\b(?:Stop-Computer|Restart-Computer|Format-Volume|Clear-Disk)\b", re.IGNORECASE
)


@cache
def _risky(language: str) -> re.Pattern[str]:
    flags = re.IGNORECASE if language in {"powershell", "osascript"} else 0
    return re.compile(_RISKY.get(language, _RISKY["other"]), flags)


def inspect_code(language: str, text: str) -> Findings:
    """Return what is dangerous in a program."""
    if language == "python":
        findings = inspect_python(text)
        if findings is not None:
            return findings
    match = _risky(language).search(text)
    if match is None:
        return Findings(unreadable=language == "python")
    word = " ".join(match.group().split())[:40]
    danger = Danger("code", f"the {language} program uses {word!r}", f"{language} -e: {word}")
    halts = language == "powershell" and _PS_HALT.search(text)
    commands = (("shutdown",),) if halts else _deletes(language, text)
    return Findings((danger,), tuple(_strings(text)), commands)


def _strings(text: str) -> list[str]:
    found = [found for pattern in _STRINGS for found in pattern.findall(text)]
    texts = [f.replace("\\'", "'").replace('\\"', '"') for f in found if " " in f.strip()]
    return texts[:50] + ([" ".join(f for f in found if f)] if found else [])


def _deletes(language: str, text: str) -> tuple[tuple[str, ...], ...]:
    """Return a recursive delete of every path named in a program that deletes trees."""
    trees = re.search(
        r"rmtree|remove_tree|rm_rf|rm_r\b|remove_dir|recursive|Remove-Item|rimraf|\bdel\b|\brd\b",
        text,
    )
    if trees is None:
        return ()
    found = [found for pattern in _STRINGS for found in pattern.findall(text)]
    if language == "powershell":
        found += text.split()
    paths = [f for f in found if f.startswith(("/", "~", "C:", "c:"))]
    return tuple(("rm", "-r", path) for path in paths[:50])
