"""The `state.db` of an earlier Hermes, as its last version writes it."""

import json
import sqlite3
from pathlib import Path

SCHEMA = """
CREATE TABLE schema_version (version INTEGER NOT NULL);
INSERT INTO schema_version VALUES (22);
CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, session_key TEXT,
  model TEXT, model_config TEXT, system_prompt TEXT, parent_session_id TEXT,
  started_at REAL NOT NULL, ended_at REAL, end_reason TEXT, message_count INTEGER DEFAULT 0,
  tool_call_count INTEGER DEFAULT 0,
  input_tokens INTEGER DEFAULT 0, output_tokens INTEGER DEFAULT 0, cwd TEXT, billing_provider TEXT,
  estimated_cost_usd REAL, actual_cost_usd REAL, title TEXT, archived INTEGER DEFAULT 0);
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL,
  role TEXT NOT NULL, content TEXT, tool_call_id TEXT, tool_calls TEXT, tool_name TEXT,
  timestamp REAL NOT NULL, finish_reason TEXT, reasoning TEXT, active INTEGER DEFAULT 1,
  compacted INTEGER DEFAULT 0);
"""
CALLS = [
    {"id": key, "type": "function", "function": {"name": name, "arguments": "{}"}}
    for key, name in (("c1", "terminal"), ("c2", "read_file"), ("c3", "terminal"))
]
PARTS = [
    {"type": "text", "text": "what is this?"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
]


def say(
    db: sqlite3.Connection, session: str, role: str, content: str | None, **more: object
) -> None:
    values = {"session_id": session, "role": role, "content": content, "timestamp": 1000.5, **more}
    marks = ", ".join("?" * len(values))
    db.execute(f"INSERT INTO messages ({', '.join(values)}) VALUES ({marks})", (*values.values(),))


def make_earlier(home: Path) -> sqlite3.Connection:
    """Write the old database; it is left in use, its last pages in the log beside it."""
    db = sqlite3.connect(home / "state.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.executescript(SCHEMA)
    db.execute(
        "INSERT INTO sessions (id, source, model, system_prompt, started_at, ended_at, end_reason,"
        " input_tokens, output_tokens, cwd, title, estimated_cost_usd) VALUES"
        " ('20250101_101010_abc', 'cli', 'anthropic/claude', 'You are old.', 1000.0, 2000.0,"
        " 'compression', 70, 30, '/srv', 'the lighthouse', 0.5)"
    )
    db.execute(
        "INSERT INTO sessions (id, source, user_id, started_at, parent_session_id, title)"
        " VALUES ('20250102_101010_def', 'telegram', '42', 3000.0, '20250101_101010_abc', NULL)"
    )
    first, second = "20250101_101010_abc", "20250102_101010_def"
    say(db, first, "system", "You are old.")
    say(db, first, "user", "list the files")
    say(db, first, "assistant", "I look.", tool_calls=json.dumps(CALLS), reasoning="hm")
    say(db, first, "tool", "second", tool_call_id="c2", tool_name="read_file")
    say(db, first, "tool", "first", tool_call_id="c1")
    say(db, first, "assistant", "There are two.", timestamp=1500.25)
    say(db, first, "user", "undone", active=0)
    db.execute(
        "INSERT INTO sessions (id, source, started_at, title) VALUES ('x', 'cli', 9, '\u200b')"
    )
    say(db, second, "user", "\0json:" + json.dumps(PARTS), timestamp=3001.0)
    say(db, second, "tool", "of a call that is gone", tool_call_id="c9", tool_name="terminal")
    say(db, second, "assistant", "A lamp.", timestamp=3002.0)
    return db
