-- The ledger. Column names follow the state.db that people already know
-- wherever the thing is the same.

CREATE TABLE state_meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Counters change with every message, so the long and constant prompt is kept
-- out of this row.
CREATE TABLE sessions (
  id                 TEXT PRIMARY KEY,
  agent_id           TEXT NOT NULL,
  source             TEXT NOT NULL,
  user_id            TEXT,
  model              TEXT NOT NULL,
  provider           TEXT NOT NULL,
  cwd                TEXT,
  parent_session_id  TEXT REFERENCES sessions(id) ON DELETE SET NULL,
  lineage            TEXT,
  title              TEXT,
  preview            TEXT NOT NULL DEFAULT '',
  started_at         REAL NOT NULL,
  updated_at         REAL NOT NULL,
  ended_at           REAL,
  end_reason         TEXT,
  message_count      INTEGER NOT NULL DEFAULT 0,
  tool_call_count    INTEGER NOT NULL DEFAULT 0,
  input_tokens       INTEGER NOT NULL DEFAULT 0,
  output_tokens      INTEGER NOT NULL DEFAULT 0,
  cache_read_tokens  INTEGER NOT NULL DEFAULT 0,
  cache_write_tokens INTEGER NOT NULL DEFAULT 0,
  reasoning_tokens   INTEGER NOT NULL DEFAULT 0,
  estimated_cost_usd REAL NOT NULL DEFAULT 0,
  next_seq           INTEGER NOT NULL DEFAULT 1,
  rewrites           INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE UNIQUE INDEX one_session_a_title ON sessions(title) WHERE title IS NOT NULL;
CREATE INDEX sessions_by_parent ON sessions(parent_session_id) WHERE parent_session_id IS NOT NULL;

CREATE TABLE session_prompts (
  session_id    TEXT PRIMARY KEY REFERENCES sessions(id) ON DELETE CASCADE,
  system_prompt TEXT NOT NULL
) STRICT;

CREATE TABLE session_facts (
  session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
  name       TEXT NOT NULL,
  value      TEXT NOT NULL,
  PRIMARY KEY (session_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE session_keys (
  session_key TEXT PRIMARY KEY,
  session_id  TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
  updated_at  REAL NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX session_keys_by_session ON session_keys(session_id);

CREATE VIEW session_rows AS
  SELECT s.rowid AS opened, s.*, p.system_prompt,
    (SELECT json_group_object(f.name, json(f.value))
       FROM session_facts f WHERE f.session_id = s.id) AS state
  FROM sessions s LEFT JOIN session_prompts p ON p.session_id = s.id;

CREATE TABLE turns (
  id          TEXT PRIMARY KEY,
  session_id  TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
  agent_id    TEXT NOT NULL,
  owner       TEXT NOT NULL,
  state       TEXT NOT NULL,
  started_at  REAL NOT NULL,
  updated_at  REAL NOT NULL,
  resumes     INTEGER NOT NULL DEFAULT 0,
  finished_at REAL,
  error       TEXT
) STRICT;
CREATE INDEX turns_by_session ON turns(session_id);
CREATE UNIQUE INDEX one_open_turn_a_session ON turns(session_id) WHERE finished_at IS NULL;

-- AUTOINCREMENT: an id is never given twice, also after deletes; the search
-- index relies on it.
-- calls_text is what can be searched of tool_calls: FTS5 cannot read its content
-- through a view that takes JSON apart.
CREATE TABLE messages (
  id                 INTEGER PRIMARY KEY AUTOINCREMENT,
  session_id         TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
  turn_id            TEXT,
  seq                INTEGER NOT NULL,
  role               TEXT NOT NULL,
  content            TEXT NOT NULL,
  parts              TEXT,
  kind               TEXT,
  sender             TEXT,
  tool_calls         TEXT,
  calls_text         TEXT,
  tool_call_id       TEXT,
  tool_name          TEXT,
  outcome            TEXT,
  finish_reason      TEXT,
  reasoning          TEXT,
  timestamp          REAL NOT NULL,
  active             INTEGER NOT NULL DEFAULT 1,
  compacted          INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX messages_by_seat ON messages(session_id, active, seq);
CREATE UNIQUE INDEX one_result_a_call ON messages(turn_id, tool_call_id)
  WHERE role = 'tool' AND turn_id IS NOT NULL;

-- The seat of each tool call's result, and whether the call was started.
CREATE TABLE calls (
  turn_id    TEXT NOT NULL REFERENCES turns(id) ON DELETE CASCADE,
  call_id    TEXT NOT NULL,
  seq        INTEGER NOT NULL,
  started_at REAL,
  PRIMARY KEY (turn_id, call_id)
) STRICT, WITHOUT ROWID;

-- No reference to sessions: that a message was seen outlives its session,
-- or a redelivery would be answered a second time.
CREATE TABLE inbox (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  platform    TEXT NOT NULL,
  account     TEXT NOT NULL,
  native_id   TEXT NOT NULL,
  agent_id    TEXT NOT NULL,
  session_key TEXT NOT NULL,
  session_id  TEXT NOT NULL,
  message     TEXT NOT NULL,
  admitted_at REAL NOT NULL,
  state       TEXT NOT NULL,
  turn_id     TEXT,
  drop_reason TEXT,
  UNIQUE (platform, account, native_id)
) STRICT;
CREATE INDEX inbox_waiting ON inbox(session_id, id) WHERE state = 'waiting';
CREATE INDEX inbox_by_session ON inbox(session_id);
CREATE INDEX inbox_taken ON inbox(turn_id) WHERE state = 'taken';

CREATE TABLE facts (
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT;

CREATE TABLE outbox (
  id         TEXT PRIMARY KEY,
  agent_id   TEXT NOT NULL,
  platform   TEXT NOT NULL,
  account    TEXT NOT NULL,
  chat_id    TEXT NOT NULL,
  thread_id  TEXT,
  reply_to   TEXT,
  kind       TEXT NOT NULL,
  content    TEXT NOT NULL,
  created_at REAL NOT NULL,
  session_id TEXT,
  turn_id    TEXT,
  part       INTEGER NOT NULL,
  attachment TEXT,
  state      TEXT NOT NULL,
  native_id  TEXT,
  attempts   INTEGER NOT NULL,
  error      TEXT,
  updated_at REAL NOT NULL
) STRICT;
CREATE INDEX outbox_by_turn ON outbox(turn_id) WHERE turn_id IS NOT NULL;
CREATE INDEX outbox_unsettled ON outbox(state) WHERE state <> 'sent';
CREATE INDEX outbox_by_session ON outbox(session_id) WHERE session_id IS NOT NULL;

CREATE TABLE approvals (
  id             TEXT PRIMARY KEY,
  kind           TEXT NOT NULL,
  agent_id       TEXT NOT NULL,
  session_id     TEXT NOT NULL,
  turn_id        TEXT NOT NULL,
  call_id        TEXT NOT NULL,
  tool           TEXT NOT NULL,
  arguments_hash TEXT NOT NULL,
  subject        TEXT NOT NULL,
  reason         TEXT NOT NULL,
  pattern        TEXT NOT NULL,
  choices        TEXT NOT NULL,
  created_at     REAL NOT NULL,
  expires_at     REAL,
  state          TEXT NOT NULL DEFAULT 'pending',
  decision       TEXT,
  choice         TEXT,
  revoked_at     REAL,
  UNIQUE (turn_id, call_id)
) STRICT;
CREATE INDEX approvals_pending ON approvals(session_id) WHERE state = 'pending';
CREATE INDEX approvals_standing ON approvals(agent_id)
  WHERE state = 'approved' AND choice IN ('session', 'always');
CREATE INDEX approvals_by_session ON approvals(session_id);

-- Money spent stays spent: rows outlive their session, without its id.
CREATE TABLE model_usage (
  id                 INTEGER PRIMARY KEY,
  session_id         TEXT,
  turn_id            TEXT,
  agent_id           TEXT NOT NULL,
  provider           TEXT NOT NULL,
  model              TEXT NOT NULL,
  task               TEXT NOT NULL,
  input_tokens       INTEGER NOT NULL,
  output_tokens      INTEGER NOT NULL,
  cache_read_tokens  INTEGER NOT NULL,
  cache_write_tokens INTEGER NOT NULL,
  reasoning_tokens   INTEGER NOT NULL,
  estimated_cost_usd REAL,
  timestamp          REAL NOT NULL
) STRICT;
CREATE INDEX model_usage_by_session ON model_usage(session_id) WHERE session_id IS NOT NULL;
CREATE INDEX model_usage_by_time ON model_usage(timestamp);

-- What can be searched of a message. The limit keeps huge tool results from
-- blowing up the index; the two blanks make the last characters begin trigrams
-- too, for needles shorter than three.
CREATE VIEW messages_text AS
  SELECT id, substr(content || coalesce(' ' || tool_name, '') || coalesce(' ' || calls_text, ''),
                    1, 20000) || '  ' AS text
  FROM messages;

CREATE VIRTUAL TABLE messages_fts USING fts5(
  text, content = 'messages_text', content_rowid = 'id',
  tokenize = 'unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE messages_fts_trigram USING fts5(
  text, content = 'messages_text', content_rowid = 'id', tokenize = 'trigram');

CREATE VIRTUAL TABLE messages_fts_terms USING fts5vocab(messages_fts_trigram, row);

-- Messages up to this id are in the index.
INSERT INTO state_meta (key, value) VALUES ('indexed_through', '0');
