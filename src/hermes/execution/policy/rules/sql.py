"""SQL that drops or empties tables."""

import re
from collections.abc import Iterator

from hermes.execution.policy.calls import Call, Danger, Ground, Source

__all__ = ["check"]

_CLIENTS = re.compile(
    r"(?:psql|mysql|mariadb|sqlite3?|sqlcmd|cqlsh|clickhouse(?:-client)?|duckdb|isql|usql|pgcli|"
    r"mycli|litecli|bq|snowsql|sqlplus|cockroach|influx)$"
)
_DROP = re.compile(
    r"\b(?:drop\s+(?:table|database|schema|view|index|user|role|column|keyspace|owned|tablespace)|"
    r"truncate(?:\s+table)?\s+\w|alter\s+table\s.*\bdrop\b|shutdown\b|revoke\b|vacuum\s+into)",
    re.IGNORECASE | re.DOTALL,
)
_DELETE = re.compile(r"\bdelete\s+from\s+[^;]*", re.IGNORECASE)
_UPDATE = re.compile(r"\bupdate\s+\S+\s+set\s[^;]*", re.IGNORECASE)
_WHERE = re.compile(
    r"\bwhere\b(?!\s*\(?\s*(?:1\s*=\s*1|true|'?\w'?\s*=\s*'?\w'?\s*(?:;|$)))", re.IGNORECASE
)
_PROGRAM = re.compile(
    r"\b(?:copy\s.*\b(?:to|from)\s+program|pg_read_file|lo_export|into\s+outfile|xp_cmdshell|"
    r"writefile\s*\()",
    re.IGNORECASE,
)


def check(call: Call, _ground: Ground) -> Iterator[Danger]:
    """Yield dangers in what a database client is given to run."""
    if not _CLIENTS.match(call.name):
        return
    texts = [*call.args, call.stdin or ""]
    texts += [a for up in call.upstream for a in up.args]
    # `DROP/**/TABLE` is `DROP TABLE`.
    for text in [re.sub(r"/\*.*?\*/", " ", t, flags=re.DOTALL) for t in texts]:
        if _DROP.search(text):
            yield Danger("sql", "it drops or truncates", "sql drop")
        for pattern, pattern_name in ((_DELETE, "sql delete"), (_UPDATE, "sql update")):
            for match in pattern.finditer(text):
                if not _WHERE.search(match.group()):
                    yield Danger("sql", "it changes every row of a table", pattern_name)
        if _PROGRAM.search(text):
            yield Danger("sql", "the query runs a program or writes files", "sql program")
    if call.source is Source.PIPE and call.stdin is None and not _plain(call):
        yield Danger("sql", "what the database would run is computed", f"| {call.name}")


def _plain(call: Call) -> bool:
    return bool(call.upstream) and call.upstream[-1].name in {"cat", "gunzip", "zcat", "pg_dump"}
