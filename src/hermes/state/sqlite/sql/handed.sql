-- name: waiting
-- Return the calls that wait for their client's results in a session.
SELECT c.turn_id, c.call_id, c.seq, m.seq AS reply_seq, m.tool_calls
FROM turns t JOIN calls c ON c.turn_id = t.id
JOIN messages m ON m.id =
  (SELECT id FROM messages WHERE session_id = t.session_id AND active = 1 AND seq < c.seq
     AND role = 'assistant' ORDER BY seq DESC, id DESC LIMIT 1)
WHERE t.session_id = ? AND t.handed = 1 AND m.turn_id = t.id
  AND NOT EXISTS (SELECT 1 FROM messages r
                  WHERE r.role = 'tool' AND r.turn_id = c.turn_id AND r.tool_call_id = c.call_id)
ORDER BY c.seq;

-- name: sessions
-- Return the sessions in which turns have handed out a call of this id, the latest first.
SELECT t.session_id FROM calls c JOIN turns t ON t.id = c.turn_id
WHERE c.call_id = ? AND t.handed = 1 ORDER BY t.finished_at DESC, t.rowid DESC;

-- name: clear
-- Note that nothing waits for a client in a session any more.
UPDATE turns SET handed = 0 WHERE session_id = ? AND handed = 1;

-- name: unanswered
-- Return the calls of a session that had no result when a message was the last one.
SELECT c.turn_id, c.call_id, c.seq, m.seq AS reply_seq, m.tool_calls
FROM turns t JOIN calls c ON c.turn_id = t.id
JOIN messages m ON m.id =
  (SELECT id FROM messages WHERE session_id = :to AND active = 1 AND seq < c.seq
     AND role = 'assistant' ORDER BY seq DESC, id DESC LIMIT 1)
WHERE t.session_id = :from AND (:handed IS NULL OR t.handed = :handed)
  AND NOT EXISTS (SELECT 1 FROM messages r
                  WHERE r.role = 'tool' AND r.turn_id = c.turn_id AND r.tool_call_id = c.call_id
                    AND r.id <= :through_id)
ORDER BY c.seq;

-- name: result_of
-- Return the result that a call of a turn has got since, unless that was undone.
SELECT * FROM messages
WHERE role = 'tool' AND turn_id = ? AND tool_call_id = ? AND (active = 1 OR compacted = 1);
