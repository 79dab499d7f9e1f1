-- name: insert
-- Commit an entry, unless its id exists.
INSERT INTO outbox (id, agent_id, platform, account, chat_id, thread_id, reply_to, kind, content,
                    created_at, session_id, turn_id, part, attachment, state, native_id, attempts,
                    error, updated_at, chat_kind, context)
VALUES (:id, :agent_id, :platform, :account, :chat_id, :thread_id, :reply_to, :kind, :content,
        :created_at, :session_id, :turn_id, :part, :attachment, :state, :native_id, :attempts,
        :error, :updated_at, :chat_kind, :context)
ON CONFLICT (id) DO NOTHING;

-- name: get
-- Return one entry.
SELECT * FROM outbox WHERE id = ?;

-- name: claim
-- Start sending a pending entry.
UPDATE outbox SET state = 'sending', attempts = attempts + 1, updated_at = :at
WHERE id = :id AND state = 'pending'
RETURNING *;

-- name: update
-- Record what became of an entry; NULL leaves a column as it is.
UPDATE outbox SET state = :state, updated_at = :at, native_id = coalesce(:native_id, native_id),
                  content = coalesce(:content, content), error = coalesce(:error, error)
WHERE id = :id
RETURNING *;

-- name: in_states
-- List entries, oldest first; a turn's entries stay together and in order.
SELECT * FROM (
  SELECT *, rowid AS enqueued,
         min(created_at) OVER (PARTITION BY coalesce(turn_id, id)) AS since
  FROM outbox
  WHERE state IN (SELECT value FROM json_each(:states)))
ORDER BY since, coalesce(turn_id, id), part, enqueued LIMIT :limit;

-- name: of_turn
-- Return the entries of a turn in order.
SELECT * FROM outbox WHERE turn_id = ? ORDER BY part, rowid;
