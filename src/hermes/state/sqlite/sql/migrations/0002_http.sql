-- Requests over HTTP: runs and their logs, API keys, webhook deliveries; and
-- what became of the due instants of jobs.

-- releases: how often a process laid the turn down in good order.
-- handed: calls of the turn wait for results that only its client can give.
-- through_seq, through_id: the last seat and the last message when it ended.
ALTER TABLE turns ADD COLUMN handed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN releases INTEGER NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN through_seq INTEGER;
ALTER TABLE turns ADD COLUMN through_id INTEGER;
CREATE INDEX turns_handed ON turns(session_id) WHERE handed = 1;
CREATE INDEX calls_by_id ON calls(call_id);
CREATE INDEX inbox_by_turn ON inbox(turn_id) WHERE turn_id IS NOT NULL;

-- No reference to sessions: an open run outlives its session until it has its
-- outcome. last_event counts the log, also once the log is gone; has_log tells
-- whether it is there.
CREATE TABLE runs (
  id              TEXT PRIMARY KEY,
  kind            TEXT NOT NULL,
  key_id          TEXT NOT NULL,
  agent_id        TEXT NOT NULL,
  session_id      TEXT NOT NULL,
  inbox_id        INTEGER NOT NULL,
  state           TEXT NOT NULL,
  request         TEXT NOT NULL,
  idempotency_key TEXT,
  fingerprint     TEXT NOT NULL,
  logged          INTEGER NOT NULL,
  created_at      REAL NOT NULL,
  updated_at      REAL NOT NULL,
  outcome         TEXT,
  previous_id     TEXT,
  branched        INTEGER NOT NULL,
  through_seq     INTEGER,
  through_id      INTEGER,
  last_event      INTEGER NOT NULL DEFAULT 0,
  has_log         INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX one_run_an_idempotency_key ON runs(key_id, idempotency_key)
  WHERE idempotency_key IS NOT NULL;
CREATE UNIQUE INDEX one_run_goes_on_in_the_session ON runs(previous_id)
  WHERE previous_id IS NOT NULL AND branched = 0;
CREATE INDEX runs_by_inbox ON runs(inbox_id);
CREATE INDEX runs_by_session ON runs(session_id);
CREATE INDEX runs_by_creation ON runs(created_at);
CREATE INDEX runs_open ON runs(created_at) WHERE outcome IS NULL;
CREATE INDEX runs_ended ON runs(updated_at) WHERE outcome IS NOT NULL;
CREATE INDEX runs_ended_with_log ON runs(updated_at) WHERE outcome IS NOT NULL AND has_log = 1;

CREATE VIEW run_rows AS
  SELECT r.rowid AS opened, r.*, i.turn_id
  FROM runs r LEFT JOIN inbox i ON i.id = r.inbox_id;

CREATE TABLE run_events (
  run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  seq    INTEGER NOT NULL,
  at     REAL NOT NULL,
  event  TEXT NOT NULL,
  PRIMARY KEY (run_id, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE api_keys (
  id           TEXT PRIMARY KEY,
  name         TEXT NOT NULL UNIQUE,
  hash         TEXT NOT NULL UNIQUE,
  hint         TEXT NOT NULL,
  agents       TEXT NOT NULL,
  actions      TEXT NOT NULL,
  created_at   REAL NOT NULL,
  expires_at   REAL,
  revoked_at   REAL,
  last_used_at REAL
) STRICT;

CREATE TABLE job_instants (
  job_id         TEXT NOT NULL,
  due_at         REAL NOT NULL,
  source         TEXT NOT NULL,
  status         TEXT NOT NULL,
  delivery       TEXT NOT NULL,
  claimed_by     TEXT NOT NULL,
  started_at     REAL,
  finished_at    REAL,
  session_id     TEXT,
  error          TEXT,
  delivery_error TEXT,
  detail         TEXT NOT NULL,
  PRIMARY KEY (job_id, due_at)
) STRICT, WITHOUT ROWID;

CREATE TABLE hook_deliveries (
  route        TEXT NOT NULL,
  delivery_id  TEXT NOT NULL,
  event        TEXT NOT NULL,
  state        TEXT NOT NULL,
  attempt      INTEGER NOT NULL,
  received_at  REAL NOT NULL,
  updated_at   REAL NOT NULL,
  session_id   TEXT,
  prompt       TEXT NOT NULL,
  target       TEXT NOT NULL,
  target_extra TEXT NOT NULL,
  deliver_only INTEGER NOT NULL,
  error        TEXT,
  PRIMARY KEY (route, delivery_id)
) STRICT;
CREATE INDEX hook_deliveries_by_state ON hook_deliveries(state, received_at);

-- Titles are unique among the sessions of one API key, and among all others:
-- what other keys call their sessions must not show in a refusal or a number.

DROP INDEX one_session_a_title;
CREATE UNIQUE INDEX one_session_a_title
  ON sessions(title, CASE source WHEN 'api_server' THEN coalesce(user_id, '') ELSE '' END)
  WHERE title IS NOT NULL;
