-- name: insert
-- Write a message into its seat.
INSERT INTO messages (session_id, turn_id, seq, role, content, parts, kind, sender, tool_calls, calls_text,
                      tool_call_id, tool_name, outcome, finish_reason, reasoning, timestamp)
VALUES (:session_id, :turn_id, :seq, :role, :content, :parts, :kind, :sender, :tool_calls, :calls_text,
        :tool_call_id, :tool_name, :outcome, :finish_reason, :reasoning, :timestamp);

-- name: history
-- Return the active messages in order.
SELECT * FROM messages WHERE session_id = ? AND active = 1 ORDER BY seq, id;

-- name: transcript
-- Return all messages in order.
SELECT * FROM messages WHERE session_id = ? ORDER BY seq, id;

-- name: rewind
-- Deactivate the messages from a seat on.
UPDATE messages SET active = 0 WHERE session_id = ? AND active = 1 AND seq >= ?;

-- name: hide
-- Deactivate one message.
UPDATE messages SET active = 0 WHERE session_id = ? AND active = 1 AND id = ?;

-- name: last_to_compact
-- Return the last active message up to a seat.
SELECT seq, timestamp FROM messages
WHERE session_id = ? AND active = 1 AND seq <= ? ORDER BY seq DESC, id DESC LIMIT 1;

-- name: compact
-- Deactivate the messages that a summary will stand for.
UPDATE messages SET active = 0, compacted = 1 WHERE session_id = ? AND active = 1 AND seq <= ?;

-- name: take_seats
-- Advance the seats and counters of a session; returns the seat after the last one taken.
UPDATE sessions SET
  next_seq = next_seq + :seats,
  message_count = message_count + :messages,
  tool_call_count = tool_call_count + :calls,
  updated_at = max(updated_at, :at),
  preview = CASE WHEN preview = '' THEN :preview ELSE preview END
WHERE id = :session_id
RETURNING next_seq;

-- name: history_state
-- Return what tells whether a history has changed.
SELECT message_count, rewrites FROM sessions WHERE id = ?;

-- name: history_after
-- Return the active messages of a session that were written after one of them.
SELECT * FROM messages WHERE session_id = ? AND id > ? AND active = 1 ORDER BY seq, id;

-- name: count_rewrite
-- Note that the history of a session was changed other than by adding to it.
UPDATE sessions SET rewrites = rewrites + 1 WHERE id = ?;

-- name: retire
-- Take a message out of the context.
UPDATE messages SET active = 0, compacted = :compacted WHERE id = :id;
