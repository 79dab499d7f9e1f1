-- name: insert
-- Open a run.
INSERT INTO runs (id, kind, key_id, agent_id, session_id, inbox_id, state, request,
                  idempotency_key, fingerprint, logged, created_at, updated_at,
                  previous_id, branched, digest)
VALUES (:id, :kind, :key_id, :agent_id, :session_id, :inbox_id, 'queued', :request,
        :idempotency_key, :fingerprint, :logged, :at, :at, :previous_id, :branched, :digest);

-- name: exists
-- Tell whether there is such a run.
SELECT 1 FROM runs WHERE id = ?;

-- name: get
-- Return one run.
SELECT * FROM run_rows WHERE id = ?;

-- name: under
-- Return the run that an API key opened under an idempotency key.
SELECT * FROM run_rows WHERE key_id = ? AND idempotency_key = ?;

-- name: retried
-- Return the newest runs of the same request that are open, or ended lately.
SELECT * FROM run_rows
WHERE key_id = :key_id AND created_at >= :at - 3600
  AND (outcome IS NULL OR updated_at >= :ended_since)
  AND (fingerprint = :fingerprint OR fingerprint = '+' || :fingerprint AND updated_at >= :since)
ORDER BY created_at DESC, opened DESC LIMIT 10;

-- name: note_delivery
-- Mark a run whose answer went out whole. Idempotency keys need the fingerprint as it is.
UPDATE runs SET fingerprint = '+' || fingerprint
WHERE id = ? AND outcome IS NOT NULL AND idempotency_key IS NULL AND fingerprint NOT LIKE '+%';

-- name: after
-- Return the newest runs of an API key in which exactly this had been said.
SELECT * FROM run_rows WHERE key_id = ? AND agent_id = ? AND digest = ?
ORDER BY created_at DESC, opened DESC LIMIT ?;

-- name: ends
-- Return the requests that others continued and in which exactly this had been said, newest first.
SELECT m.id, m.session_id, m.turn_id, m.seq, m.content, m.timestamp,
       coalesce(m.run, m.turn_id) AS run, s.user_id, s.agent_id
FROM messages m JOIN sessions s ON s.id = m.session_id
WHERE m.ends = ? ORDER BY m.id DESC LIMIT ?;

-- name: end_of
-- Return one of them; few ask for it, so that it has no index of its own.
SELECT m.id, m.session_id, m.turn_id, m.seq, m.content, m.timestamp,
       coalesce(m.run, m.turn_id) AS run, s.user_id, s.agent_id
FROM messages m INDEXED BY messages_by_end JOIN sessions s ON s.id = m.session_id
WHERE m.ends IS NOT NULL AND coalesce(m.run, m.turn_id) = ?;

-- name: ends_matching
-- List those that match a query, newest first. A session of a key is named after it.
SELECT m.id, m.session_id, m.turn_id, m.seq, m.content, m.timestamp,
       coalesce(m.run, m.turn_id) AS run, s.user_id, s.agent_id
FROM messages m JOIN sessions s ON s.id = m.session_id
WHERE m.ends IS NOT NULL
  AND (:session_id IS NULL OR m.session_id = :session_id)
  AND (:key_id IS NULL OR s.user_id = 'key:' || :key_id
       OR substr(s.user_id, 1, length(:key_id) + 5) = 'key:' || :key_id || '/')
  AND (:agent_id IS NULL OR s.agent_id = :agent_id)
  AND (:kinds = '[]' OR 'chat' IN (SELECT value FROM json_each(:kinds)))
  AND (:states = '[]' OR 'completed' IN (SELECT value FROM json_each(:states)))
  AND (:updated_before IS NULL OR m.timestamp < :updated_before)
ORDER BY m.id DESC LIMIT :limit;

-- name: is_last
-- Tell whether a run can go on after a message in its session: nothing said since, nothing under way.
SELECT 1 FROM messages m JOIN sessions s ON s.id = m.session_id
WHERE m.id = ? AND m.seq = s.next_seq - 1
  AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.session_id = s.id AND t.finished_at IS NULL)
  AND NOT EXISTS (SELECT 1 FROM inbox i INDEXED BY inbox_waiting
                  WHERE i.session_id = s.id AND i.state = 'waiting');

-- name: note_end
-- Keep with the last message of an answer where its request ended; not if more was said in its turn.
UPDATE messages SET ends = :ends, run = iif(:question, NULL, :run),
                    turn_id = iif(:question, :run, turn_id)
WHERE id = :said_id AND seq = :through_seq;

-- name: question
-- Return the message before the end of a turn if it is all that the turn answered.
SELECT m.id FROM messages m
WHERE m.session_id = :session_id AND m.active = 1 AND m.seq = :through_seq - 1
  AND m.turn_id = :turn_id AND m.role = 'user'
  AND NOT EXISTS (SELECT 1 FROM messages b WHERE b.session_id = :session_id AND b.active = 1
                    AND b.seq = :through_seq - 2 AND b.turn_id = :turn_id);

-- name: settle_question
-- Forget in which turn a question was asked: the answer after it tells.
UPDATE messages SET turn_id = NULL WHERE id = ?;

-- name: forget_turn
-- Forget the turn of such a request, once nothing is owed for it.
DELETE FROM turns WHERE id = :turn_id AND finished_at IS NOT NULL AND handed = 0
  AND NOT EXISTS (SELECT 1 FROM inbox WHERE turn_id = :turn_id);

-- name: count_settled
-- Count a turn that was forgotten.
UPDATE sessions SET settled_turns = settled_turns + 1 WHERE id = ?;

-- name: matching
-- List runs that match a query, newest first.
SELECT * FROM run_rows
WHERE (:key_id IS NULL OR key_id = :key_id)
  AND (:agent_id IS NULL OR agent_id = :agent_id)
  AND (:kinds = '[]' OR kind IN (SELECT value FROM json_each(:kinds)))
  AND (:states = '[]' OR state IN (SELECT value FROM json_each(:states)))
  AND (:updated_before IS NULL OR updated_at < :updated_before)
ORDER BY created_at DESC, opened DESC LIMIT :limit OFFSET :offset;

-- name: matching_open
-- The same among the runs that have no outcome.
SELECT * FROM run_rows
WHERE outcome IS NULL
  AND (:key_id IS NULL OR key_id = :key_id)
  AND (:agent_id IS NULL OR agent_id = :agent_id)
  AND (:kinds = '[]' OR kind IN (SELECT value FROM json_each(:kinds)))
  AND state IN (SELECT value FROM json_each(:states))
  AND (:updated_before IS NULL OR updated_at < :updated_before)
ORDER BY created_at DESC, opened DESC LIMIT :limit OFFSET :offset;

-- name: matching_in_session
-- The same among the runs of one session.
SELECT * FROM run_rows
WHERE session_id = :session_id
  AND (:key_id IS NULL OR key_id = :key_id)
  AND (:agent_id IS NULL OR agent_id = :agent_id)
  AND (:kinds = '[]' OR kind IN (SELECT value FROM json_each(:kinds)))
  AND (:states = '[]' OR state IN (SELECT value FROM json_each(:states)))
  AND (:updated_before IS NULL OR updated_at < :updated_before)
ORDER BY +created_at DESC, opened DESC LIMIT :limit OFFSET :offset;

-- name: count_events
-- Make room in the log of an open run; returns the id of the last event.
UPDATE runs SET last_event = last_event + :events, has_log = last_event + :events > 0,
                updated_at = max(updated_at, :at)
WHERE id = :id AND outcome IS NULL
RETURNING last_event;

-- name: last_event
-- Return the id of the last event in the log.
SELECT last_event FROM runs WHERE id = ?;

-- name: insert_event
-- Append an event to the log.
INSERT INTO run_events (run_id, seq, at, event) VALUES (?, ?, ?, ?);

-- name: log
-- Return logged events after one of them.
SELECT seq, at, event FROM run_events WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?;

-- name: end
-- Return what tells where the history stands at the end of an open run.
SELECT r.session_id, s.next_seq, t.through_seq, t.through_id, o.id AS open_turn, i.turn_id,
       (SELECT coalesce(max(id), 0) FROM messages) AS newest
FROM runs r
LEFT JOIN sessions s ON s.id = r.session_id
LEFT JOIN inbox i ON i.id = r.inbox_id
LEFT JOIN turns t ON t.id = i.turn_id
LEFT JOIN turns o ON o.session_id = r.session_id AND o.finished_at IS NULL
WHERE r.id = ? AND r.outcome IS NULL;

-- name: first_of_turn
-- Return the first seat and the first message that a turn has taken.
SELECT min(seq) AS seq, min(id) AS id FROM messages WHERE session_id = ? AND turn_id = ?;

-- name: said
-- Return the last thing that was said in a turn.
SELECT id, content FROM messages WHERE session_id = ? AND turn_id = ? AND role = 'assistant'
ORDER BY seq DESC LIMIT 1;

-- name: finish
-- Record the outcome of a run.
UPDATE runs SET state = :state, outcome = :outcome, updated_at = max(updated_at, :at),
                last_event = last_event + :events, has_log = last_event + :events > 0,
                said_id = :said_id, through_seq = :through_seq, through_id = :through_id
WHERE id = :id
RETURNING last_event;

-- name: mark_answered
-- Note that the outcome of the message's turn is where its sender finds it; a turn that waits for
-- an answer to what it asked is not over. What was said is in the history by then: of the message
-- only who sent it is kept.
UPDATE inbox SET state = 'answered', message = json_set(
    json_remove(message, '$.options', '$.results', '$.attachments', '$.reply_to', '$.group_id',
                '$.context', '$.reply_context', '$.internal', '$.thread_id', '$.chat.name',
                '$.chat.topic', '$.chat.parent_id', '$.chat.scope_id', '$.sender.name',
                '$.sender.alt_id', '$.sender.is_bot', '$.sender.roles'), '$.text', '')
WHERE id = (SELECT inbox_id FROM runs WHERE id = ?) AND state = 'taken'
  AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.id = inbox.turn_id AND t.finished_at IS NULL);

-- name: keep_turn
-- Let a run know its turn by itself, if that is over and nobody can repeat the request.
UPDATE runs SET ended_turn = i.turn_id FROM inbox i
WHERE runs.id = ? AND idempotency_key IS NULL AND i.id = inbox_id AND i.state = 'taken'
  AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.id = i.turn_id AND t.finished_at IS NULL);

-- name: leave_inbox
-- Forget the message of such a run: it is in the history.
DELETE FROM inbox WHERE id = (SELECT inbox_id FROM runs WHERE id = ? AND ended_turn IS NOT NULL);

-- name: delete
-- Forget a run; its log goes with it.
DELETE FROM runs WHERE id = ?;

-- name: delete_of_session
-- Forget the runs of a session that have ended.
DELETE FROM runs WHERE session_id = ? AND outcome IS NOT NULL;

-- name: prune
-- Forget some runs that ended before a time.
DELETE FROM runs WHERE id IN
  (SELECT id FROM runs WHERE outcome IS NOT NULL AND created_at < :before AND updated_at < :before
   ORDER BY created_at LIMIT :limit);

-- name: old_logs
-- Return some runs with a log that ended before a time.
SELECT id FROM runs WHERE outcome IS NOT NULL AND has_log = 1 AND updated_at < ?
ORDER BY updated_at LIMIT ?;

-- name: drop_log
-- Forget the log of a run.
DELETE FROM run_events WHERE run_id = ?;

-- name: note_no_log
-- Note that a run has no log any more.
UPDATE runs SET has_log = 0 WHERE id = ?;

-- name: is_free
-- Tell whether a run can go on in its session: nothing said since, nothing under way.
SELECT 1 FROM runs r JOIN sessions s ON s.id = r.session_id
WHERE r.id = ? AND s.next_seq - 1 = r.through_seq
  AND NOT EXISTS (SELECT 1 FROM runs n WHERE n.previous_id = r.id AND n.branched = 0)
  AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.session_id = s.id AND t.finished_at IS NULL)
  AND NOT EXISTS (SELECT 1 FROM inbox i INDEXED BY inbox_waiting
                  WHERE i.session_id = s.id AND i.state = 'waiting');

-- name: copy_messages
-- Give a branch the history that a run left: without what was said, undone or compacted since,
-- except that what was undone since stays undone.
WITH summaries AS MATERIALIZED (
  SELECT id, seq FROM messages
  WHERE session_id = :from AND kind = 'summary' AND id <= :through_id)
INSERT INTO messages (session_id, turn_id, seq, role, content, parts, kind, sender, tool_calls, calls_text,
                      tool_call_id, tool_name, outcome, finish_reason, reasoning, timestamp)
SELECT :to, NULL, seq, role, content, parts, kind, sender, tool_calls, calls_text,
       tool_call_id, tool_name, outcome, finish_reason, reasoning, timestamp
FROM messages m
WHERE session_id = :from AND id <= :through_id AND (active = 1 OR compacted = 1)
  AND NOT EXISTS (SELECT 1 FROM summaries s WHERE s.id > m.id AND s.seq >= m.seq)
ORDER BY seq, id;

-- name: set_next_seat
-- Let a branch go on after the last seat of its history.
UPDATE sessions SET next_seq = ? WHERE id = ?;
