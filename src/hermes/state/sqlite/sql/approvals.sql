-- name: insert
-- Commit a request.
INSERT INTO approvals (id, kind, agent_id, session_id, turn_id, call_id, tool, arguments_hash,
                       subject, reason, pattern, choices, created_at, expires_at)
VALUES (:id, :kind, :agent_id, :session_id, :turn_id, :call_id, :tool, :arguments_hash,
        :subject, :reason, :pattern, :choices, :created_at, :expires_at);

-- name: for_call
-- Return the request for a call of a turn.
SELECT * FROM approvals WHERE turn_id = ? AND call_id = ?;

-- name: get
-- Return one.
SELECT * FROM approvals WHERE id = ?;

-- name: decide
-- Record the answer to a pending request.
UPDATE approvals SET state = :state, choice = :choice, decision = :decision
WHERE id = :id AND state = 'pending'
RETURNING *;

-- name: settle
-- Nobody waits any more for the answers that a turn asked for; stopping it is a denial.
UPDATE approvals
SET state = iif(kind = 'approval' AND :denial IS NOT NULL, 'denied', 'expired'),
    choice = iif(kind = 'approval' AND :denial IS NOT NULL, 'deny', choice),
    decision = iif(kind = 'approval', :denial, decision)
WHERE turn_id = :turn_id AND state = 'pending';

-- name: pending
-- Return what waits for an answer, oldest first.
SELECT * FROM approvals WHERE state = 'pending' AND (:session_id IS NULL OR session_id = :session_id)
ORDER BY created_at, rowid;

-- name: grants
-- Return the standing permissions of an agent and a session, oldest first.
SELECT * FROM approvals
WHERE agent_id = :agent_id AND state = 'approved' AND kind = 'approval'
  AND (choice = 'always' OR (choice = 'session' AND session_id = :session_id))
ORDER BY created_at, rowid;

-- name: newest
-- List the newest.
SELECT * FROM approvals ORDER BY created_at DESC, rowid DESC LIMIT ?;

-- name: revoke
-- Withdraw a standing permission.
UPDATE approvals SET state = 'revoked', revoked_at = :at
WHERE id = :id AND state = 'approved' AND choice IN ('session', 'always');
