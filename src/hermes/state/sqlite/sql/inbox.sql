-- name: insert
-- Admit a message.
INSERT INTO inbox (platform, account, native_id, agent_id, session_key, session_id, message,
                   admitted_at, state, drop_reason)
VALUES (:platform, :account, :native_id, :agent_id, :session_key, :session_id, :message,
        :at, :state, :handled_as)
RETURNING *;

-- name: by_native
-- Return the entry of a message.
SELECT * FROM inbox WHERE platform = ? AND account = ? AND native_id = ?;

-- name: dequeue
-- Let an entry leave the queue.
UPDATE inbox SET session_id = :session_id, message = :message, state = :state,
                 drop_reason = :handled_as
WHERE platform = :platform AND account = :account AND native_id = :native_id
RETURNING *;

-- name: queued
-- Return what is behind the commit, and commands that have begun.
SELECT * FROM inbox
WHERE state IN ('queued', 'begun') AND platform IN (SELECT value FROM json_each(?)) ORDER BY id;

-- name: waiting
-- Return what waits in a session, in order of admission.
SELECT * FROM inbox WHERE session_id = ? AND state = 'waiting' ORDER BY id;

-- name: sessions_waiting
-- Return the sessions with something waiting, the longest wait first.
SELECT session_id FROM inbox WHERE state = 'waiting' GROUP BY session_id ORDER BY min(id);

-- name: take
-- Give a waiting entry to a turn.
UPDATE inbox SET state = 'taken', turn_id = :turn_id
WHERE id = :id AND session_id = :session_id AND state = 'waiting';

-- name: drop
-- Record that an entry will not be answered.
UPDATE inbox SET state = 'dropped', drop_reason = ?
WHERE id = ? AND state IN ('queued', 'begun', 'waiting');

-- name: mark_answered
-- Record that the outcome of a turn was delivered.
UPDATE inbox SET state = 'answered' WHERE turn_id = ? AND state = 'taken';

-- name: asked_before
-- Return what others asked in a chat a moment before an entry and has no answer yet.
SELECT id FROM inbox
WHERE id < :id AND id > :id - 100 AND state IN ('waiting', 'taken') AND admitted_at >= :since
  AND platform = :platform AND account = :account AND session_id <> :session_id
  AND message ->> '$.chat.id' = :chat_id
ORDER BY id;

-- name: unanswered
-- Return what turns have taken without their outcome being delivered.
SELECT * FROM inbox
WHERE state = 'taken' AND platform IN (SELECT value FROM json_each(?)) ORDER BY id;

-- name: get
-- Return one entry.
SELECT * FROM inbox WHERE id = ?;

-- name: of_turn
-- Return what a turn has taken.
SELECT * FROM inbox WHERE turn_id = ? ORDER BY id;
