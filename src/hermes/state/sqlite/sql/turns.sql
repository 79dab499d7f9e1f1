-- name: insert
-- Begin a turn.
INSERT INTO turns (id, session_id, agent_id, owner, state, started_at, updated_at)
SELECT :id, id, agent_id, :owner, 'running', :at, :at FROM sessions WHERE id = :session_id
RETURNING *;

-- name: reopen_session
-- A session in which something happens has not ended.
UPDATE sessions SET ended_at = NULL, end_reason = NULL WHERE id = ? AND ended_at IS NOT NULL;

-- name: touch
-- Note that something happened in an open turn; returns its session.
UPDATE turns SET updated_at = max(updated_at, :at) WHERE id = :id AND finished_at IS NULL
RETURNING session_id;

-- name: get
-- Return one turn.
SELECT * FROM turns WHERE id = ?;

-- name: exists
-- Tell whether there is such a turn.
SELECT 1 FROM turns WHERE id = ?;

-- name: open
-- Return all turns that have not ended, oldest first.
SELECT * FROM turns WHERE finished_at IS NULL ORDER BY started_at, rowid;

-- name: open_in_session
-- Return the open turn of a session.
SELECT * FROM turns WHERE session_id = ? AND finished_at IS NULL;

-- name: set_state
-- Switch an open turn between running and waiting.
UPDATE turns SET state = :state, updated_at = max(updated_at, :at)
WHERE id = :id AND finished_at IS NULL
RETURNING id;

-- name: finish
-- End an open turn.
UPDATE turns SET state = :state, error = :error, finished_at = :at,
                 updated_at = max(updated_at, :at), handed = :handed,
                 through_seq = (SELECT next_seq - 1 FROM sessions s WHERE s.id = session_id),
                 through_id = (SELECT coalesce(max(id), 0) FROM messages)
WHERE id = :id AND finished_at IS NULL
RETURNING session_id;

-- name: touch_session
-- Note that something happened in a session.
UPDATE sessions SET updated_at = max(updated_at, :at) WHERE id = :id;

-- name: claim
-- Take an open turn over from its previous owner.
UPDATE turns SET owner = :owner, resumes = resumes + 1, updated_at = max(updated_at, :at)
WHERE id = :id AND owner = :previous AND finished_at IS NULL
RETURNING *;

-- name: seat_call
-- Reserve the seat for the result of a call.
INSERT INTO calls (turn_id, call_id, seq) VALUES (?, ?, ?);

-- name: call
-- Return the seat of a call and whether it was started.
SELECT seq, started_at FROM calls WHERE turn_id = ? AND call_id = ?;

-- name: start_call
-- Record that a call is about to have its effect.
UPDATE calls SET started_at = ? WHERE turn_id = ? AND call_id = ? AND started_at IS NULL;

-- name: started_calls
-- Return the calls of a turn that were started.
SELECT call_id FROM calls WHERE turn_id = ? AND started_at IS NOT NULL;

-- name: release
-- Note that an open turn was laid down in good order.
UPDATE turns SET releases = releases + 1, updated_at = max(updated_at, :at)
WHERE id = :id AND finished_at IS NULL;
