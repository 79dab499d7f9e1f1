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
-- Record what became of an entry; NULL leaves a column as it is. Of what is pending nothing is visible.
UPDATE outbox SET state = :state, updated_at = :at,
                  native_id = iif(:state = 'pending', NULL, coalesce(:native_id, native_id)),
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

-- name: seen_in_chat
-- Return the ids of a chat's newest messages, and since when each is known.
SELECT native_id, updated_at FROM (
  SELECT native_id, updated_at FROM outbox
  WHERE platform = :platform AND account IN (:account, '') AND chat_id = :chat_id
    AND native_id IS NOT NULL
  ORDER BY rowid DESC LIMIT 500)
UNION ALL
SELECT native_id, admitted_at FROM inbox
WHERE id > (SELECT max(id) - 2000 FROM inbox) AND platform = :platform AND account = :account
  AND message ->> '$.chat.id' = :chat_id;
