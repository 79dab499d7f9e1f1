"""What ssh says when something is wrong, in words that help."""

import re

from hermes.domain.errors import ConfigError, HermesError

__all__ = ["connection_error", "lost_sentence"]

_KNOWN: tuple[tuple[str, str, str], ...] = (
    (
        r"Could not resolve hostname",
        "The ssh host `{host}` is not known.",
        "Check `terminal.ssh_host`.",
    ),
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key verification failed",
        "The ssh host `{host}` shows another key than before; nothing was sent.",
        "If the change is legitimate: ssh-keygen -R {host}",
    ),
    (
        r"Permission denied|Too many authentication failures",
        "The ssh host `{host}` refuses the key.",
        (
            "Check `terminal.ssh_user` and `terminal.ssh_key`; the key must be in its"
            " authorized_keys and must not need a passphrase."
        ),
    ),
    (
        r"UNPROTECTED PRIVATE KEY FILE|bad permissions",
        "The private key for ssh host `{host}` is readable by others, so ssh ignores it.",
        "Set its mode to 600.",
    ),
    (
        r"Connection refused",
        "Nothing listens for ssh on `{host}`, port {port}.",
        "Check `terminal.ssh_port` and that sshd runs there.",
    ),
    (
        r"timed out|No route to host|Network is unreachable",
        "The ssh host `{host}` does not answer.",
        "Check the network and `terminal.ssh_host`.",
    ),
)
# Without a master ssh tries to connect by itself, which we have made impossible.
_NOTHING_STARTED = re.compile(
    r"Control socket connect|Session open refused|hello exchange failed|kex_exchange_identification"
)


def connection_error(host: str, port: int, output: str) -> HermesError:
    """Return the error for a connection that could not be made."""
    for pattern, sentence, hint in _KNOWN:
        if re.search(pattern, output):
            kind = HermesError if "answer" in sentence or "listens" in sentence else ConfigError
            return kind(sentence.format(host=host, port=port), hint=hint.format(host=host))
    last = output.strip().rpartition("\n")[2]
    return HermesError(
        f"No connection to the ssh host `{host}`: {last or 'ssh ended without a word'}.",
        hint=f"Try it by hand: ssh -v -p {port} {host}",
    )


def lost_sentence(host: str, exit_code: int | None, output: str) -> str:
    """Return what to say about a command whose end was not seen."""
    if exit_code in {126, 127}:
        return f"There is no bash on the ssh host `{host}`; nothing was run"
    if _NOTHING_STARTED.search(output):
        return f"The connection to the ssh host `{host}` is gone; the command was not started"
    return (
        f"The connection to the ssh host `{host}` was lost; whether the command took effect"
        " is unknown, and it may still be running there"
    )
