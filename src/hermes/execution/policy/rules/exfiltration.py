"""Secrets on their way to the network, and shells on their way in."""

import re
from collections.abc import Iterator

from hermes.execution.policy.calls import Call, Danger, Ground
from hermes.execution.policy.places import PlaceKind, place_of
from hermes.execution.policy.vocabulary import words

__all__ = ["NETWORK", "check", "reads_secret"]

NETWORK = words(
    "curl wget nc ncat netcat socat telnet ssh scp sftp rsync ftp lftp http https xh mail sendmail "
    "mailx mutt aws gsutil rclone openssl nslookup dig host ping tftp smbclient irm iwr gh "
    "Invoke-WebRequest transfer wormhole croc wget2 aria2c magic-wormhole"
)
_SECRET_KINDS = frozenset({PlaceKind.SSH, PlaceKind.CREDENTIALS, PlaceKind.SECRETS,
                           PlaceKind.HERMES, PlaceKind.LEDGER})  # fmt: skip
_SECRET_FILES = re.compile(
    r"^/etc/?$|^/root/?$|/etc/(?:passwd|shadow|sudoers|gshadow|ssl/private|krb5\.keytab)|/proc/\S*/environ|"
    r"\.(?:pem|key|p12|pfx|kdbx|keystore|jks)$|(?:_history|wallet\.dat|Cookies|Login Data)$|"
    r"/run/secrets/|/var/run/secrets/"
)
_PUBLIC = re.compile(r"\.pub$|known_hosts$|/\.ssh/config$|/cert\.pem$|ca-certificates|cacert")
_ENVIRONMENT = frozenset({"env", "printenv", "set", "export", "declare"})
_SOCKET = re.compile(r"/dev/(?:tcp|udp)/")


def check(call: Call, ground: Ground) -> Iterator[Danger]:
    """Yield dangers of data leaving and of shells for strangers."""
    yield from _reverse_shell(call)
    if call.name not in NETWORK and not any(_SOCKET.match(w) for w in call.writes):
        return
    leaks = any(reads_secret(c, ground) for c in (*call.upstream, *call.inner)) or _sends_secret(
        call, ground
    )
    if leaks:
        yield Danger("exfiltration", "it sends secrets over the network")


def reads_secret(call: Call, ground: Ground) -> bool:
    """Return whether `call` prints secrets."""
    if call.name in _ENVIRONMENT and not call.operands() and call.name != "export":
        return True
    if call.name == "printenv" or (call.name in {"export", "declare"} and "-p" in call.args):
        return True
    if call.name in {"history", "security", "pass", "op", "secret-tool"}:
        return True
    return any(_is_secret(a, call.cwd, ground) for a in (*call.args, *call.reads))


def _is_secret(text: str, cwd: str | None, ground: Ground) -> bool:
    path = re.sub(r"^(?:[\w-]+=)?@?", "", text)
    if not path or _PUBLIC.search(path) or "://" in path:
        return False
    if _SECRET_FILES.search(path):
        return True
    if path.rstrip("/") == ground.user_home:
        return True
    place = place_of(path, cwd, ground)
    return place is not None and place.kind in _SECRET_KINDS


def _sends_secret(call: Call, ground: Ground) -> bool:
    if call.reads and any(_is_secret(r, call.cwd, ground) for r in call.reads):
        return True
    if call.name in {"scp", "rsync", "sftp", "rclone", "gsutil", "aws"}:
        keys = set(call.values_of("-i", "-F", "-e"))
        return any(_is_secret(a, call.cwd, ground) and a not in keys for a in call.operands()[:-1])
    sent = [
        *call.values_of("-d", "--data", "--data-binary", "--data-raw", "--data-urlencode", "-F",
                        "--form", "-T", "--upload-file", "--post-file", "--body-file", "-a", "-H",
                        "-u", "--user", "--url-query", "--json", "-b", "--header")
    ]  # fmt: skip
    files = [s for s in sent if "@" in s or s.startswith(("/", "~", "."))]
    return any(_is_secret(re.sub(r".*?[@]", "@", s), call.cwd, ground) for s in files) or any(
        s.startswith("file:///") and _is_secret(s[7:], call.cwd, ground) for s in call.args
    )


def _reverse_shell(call: Call) -> Iterator[Danger]:
    if any(_SOCKET.match(w) for w in (*call.writes, *call.reads)):
        interactive = call.name in {"bash", "sh", "zsh", "exec", ":"} or "i" in call.letters()
        reason = (
            "it connects a shell to the network" if interactive else "it opens a raw connection"
        )
        yield Danger("reverse-shell", reason, "/dev/tcp")
    if call.name in {"nc", "ncat", "netcat"} and (
        call.letters() & {"e", "c"} or call.has_long("exec") or call.has_long("sh-exec")
    ):
        yield Danger("reverse-shell", "it connects a program to the network", "nc -e")
    if call.name in {"nc", "ncat", "netcat"} and "l" in call.letters():
        yield Danger("reverse-shell", "it listens on the network", "nc -l")
    if call.name == "socat" and re.search(r"(?i)\b(?:exec|system|shell)\s*:", call.line):
        yield Danger("reverse-shell", "it connects a program to the network", "socat exec")
    if call.name in {"sh", "bash", "zsh"} and any(
        u.name in {"nc", "ncat", "netcat", "socat", "telnet"} for u in call.upstream
    ):
        yield Danger("reverse-shell", "it connects a shell to the network", "nc | sh")
    if call.name in {"nc", "ncat", "telnet"} and any(
        u.name in {"sh", "bash", "zsh"} for u in call.upstream
    ):
        yield Danger("reverse-shell", "it connects a shell to the network", "nc | sh")
    if call.name == "ssh" and re.search(r"(?:^|\s)-[a-zA-Z]*R", call.line):
        yield Danger("reverse-shell", "it opens a way in from outside", "ssh -R")
    if call.name in {"ngrok", "cloudflared", "localtunnel", "lt", "bore", "chisel", "frpc"}:
        yield Danger("reverse-shell", "it opens a way in from outside", call.name)
