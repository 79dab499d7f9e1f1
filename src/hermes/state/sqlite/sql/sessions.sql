-- name: insert
-- Open a session.
INSERT INTO sessions (id, agent_id, source, user_id, model, provider, cwd, parent_session_id,
                      lineage, title, started_at, updated_at, for_requests)
VALUES (:id, :agent_id, :source, :user_id, :model, :provider, :cwd, :parent_id,
        :lineage, :title, :started_at, :started_at, :for_requests);

-- name: get
-- Return one session.
SELECT * FROM session_rows WHERE id = ?;

-- name: exists
-- Tell whether there is such a session.
SELECT 1 FROM sessions WHERE id = ?;

-- name: title_exists
-- Tell whether another session in the same scope has this title.
SELECT 1 FROM sessions WHERE title = :title AND id <> :id
  AND CASE source WHEN 'api_server' THEN coalesce(user_id, '') ELSE '' END = :scope;

-- name: is_busy
-- Tell whether a session has an open turn, an open run or anything waiting.
SELECT 1 WHERE EXISTS (SELECT 1 FROM turns WHERE session_id = :id AND finished_at IS NULL)
  OR EXISTS (SELECT 1 FROM inbox WHERE session_id = :id AND state IN ('queued', 'waiting'))
  OR EXISTS (SELECT 1 FROM runs WHERE session_id = :id AND outcome IS NULL);

-- name: by_title
-- Find the most recently used session with this title or a numbered continuation of it.
SELECT * FROM session_rows
WHERE title = :title
   OR (substr(title, 1, length(:title) + 2) = :title || ' #'
       AND length(title) > length(:title) + 2
       AND substr(title, length(:title) + 3) NOT GLOB '*[^0-9]*')
ORDER BY updated_at DESC, opened DESC LIMIT 1;

-- name: by_prefix
-- Find at most two sessions whose id begins like this.
SELECT * FROM session_rows WHERE substr(id, 1, length(:prefix)) = :prefix LIMIT 2;

-- name: matching
-- List the ids that match a query, most recently used first.
SELECT id FROM sessions
WHERE (:agent_id IS NULL OR agent_id = :agent_id)
  AND source NOT IN (SELECT value FROM json_each(:exclude_sources))
  AND (lineage IS NULL OR lineage NOT IN (SELECT value FROM json_each(:exclude_lineages)))
  AND (:title IS NULL OR instr(fold(title), fold(:title)) > 0)
  AND (:model IS NULL OR model = :model)
  AND ((:source IS NULL OR source = :source) AND (:user_id IS NULL OR user_id = :user_id)
       OR id IN (SELECT session_id FROM session_keys WHERE session_key = :key)
       OR EXISTS (SELECT 1 FROM inbox
                  WHERE :key IS NOT NULL AND session_id = sessions.id AND session_key = :key))
  AND (:owner IS NULL OR user_id = :owner
       OR substr(user_id, 1, length(:owner) + 1) = :owner || '/')
  AND (:cwd IS NULL OR cwd = :cwd)
  AND (:started_before IS NULL OR started_at < :started_before)
  AND (:started_after IS NULL OR started_at > :started_after)
  AND (:updated_before IS NULL OR updated_at < :updated_before)
  AND (:ended IS NULL OR (ended_at IS NOT NULL) = :ended)
  AND (:for_requests IS NULL OR (for_requests AND title IS NULL) = :for_requests)
  AND (:min_messages IS NULL OR message_count >= :min_messages)
  AND (:max_messages IS NULL OR message_count <= :max_messages)
ORDER BY updated_at DESC, rowid DESC LIMIT :limit OFFSET :offset;

-- name: keep_prompt
-- Write a prompt down, unless a session had the same.
INSERT OR IGNORE INTO prompts (hash, text) VALUES (:hash, :prompt);

-- name: freeze_prompt
-- Give a session its prompt, once.
UPDATE sessions SET prompt_id = (SELECT id FROM prompts WHERE hash = :hash)
WHERE id = :id AND prompt_id IS NULL;

-- name: prompt
-- Return the frozen prompt of a session.
SELECT p.text FROM sessions s JOIN prompts p ON p.id = s.prompt_id WHERE s.id = ?;

-- name: drop_prompts
-- Forget the prompts that no session has any more.
DELETE FROM prompts WHERE id NOT IN (SELECT prompt_id FROM sessions WHERE prompt_id IS NOT NULL);

-- name: set_title
-- Set the title.
UPDATE sessions SET title = :title WHERE id = :id;

-- name: update
-- Change what later turns use; NULL leaves a column as it is.
UPDATE sessions SET model = coalesce(:model, model), provider = coalesce(:provider, provider),
                    cwd = coalesce(:cwd, cwd)
WHERE id = :id;

-- name: end
-- Mark a session as ended.
UPDATE sessions SET ended_at = :at, end_reason = :reason, updated_at = max(updated_at, :at)
WHERE id = :id;

-- name: copy_prompt
-- Give a branch the prompt of its origin.
UPDATE sessions SET prompt_id = (SELECT prompt_id FROM sessions WHERE id = :from) WHERE id = :to;

-- name: copy_messages
-- Give a branch the active history of its origin, up to the last finished turn.
INSERT INTO messages (session_id, turn_id, seq, role, content, parts, kind, sender, tool_calls, calls_text,
                      tool_call_id, tool_name, outcome, finish_reason, reasoning, timestamp)
SELECT :to, NULL, seq, role, content, parts, kind, sender, tool_calls, calls_text,
       tool_call_id, tool_name, outcome, finish_reason, reasoning, timestamp
FROM messages
WHERE session_id = :from AND active = 1
  AND (turn_id IS NULL OR turn_id NOT IN
       (SELECT id FROM turns WHERE session_id = :from AND finished_at IS NULL))
ORDER BY seq, id;

-- name: copy_counters
-- Make the counters of a branch fit its copied history.
UPDATE sessions SET
  next_seq = (SELECT next_seq FROM sessions WHERE id = :from),
  preview = (SELECT preview FROM sessions WHERE id = :from),
  message_count = (SELECT count(*) FROM messages WHERE session_id = :to),
  tool_call_count = (SELECT coalesce(sum(json_array_length(tool_calls)), 0)
                       FROM messages WHERE session_id = :to)
WHERE id = :to;

-- name: delete
-- Delete a session; messages, turns, facts and keys go with it.
DELETE FROM sessions WHERE id = ?;

-- name: close_inbox
-- Keep only the fact that these messages were seen.
UPDATE inbox SET
  message = json_remove(json_set(message, '$.text', ''), '$.attachments', '$.reply_to',
                        '$.context', '$.reply_context', '$.options', '$.results'),
  drop_reason = CASE WHEN state IN ('queued', 'begun', 'waiting') THEN 'session deleted'
                     ELSE drop_reason END,
  state = CASE WHEN state IN ('queued', 'begun', 'waiting') THEN 'dropped' ELSE state END
WHERE session_id = ?;

-- name: delete_outbox
-- Forget what was to be sent for a session.
DELETE FROM outbox WHERE session_id = ?;

-- name: delete_approvals
-- Forget a session's approvals, except permissions that hold for all sessions.
DELETE FROM approvals
WHERE session_id = ? AND NOT (state = 'approved' AND choice = 'always');

-- name: detach_usage
-- Keep what was spent, without the session.
UPDATE model_usage SET session_id = NULL, turn_id = NULL WHERE session_id = ?;

-- name: has_open_turn
-- Tell whether a turn of the session has not ended.
SELECT 1 FROM turns WHERE session_id = ? AND finished_at IS NULL;

-- name: set_fact
-- Remember a fact with the session.
INSERT INTO session_facts (session_id, name, value) VALUES (?, ?, ?)
ON CONFLICT (session_id, name) DO UPDATE SET value = excluded.value;

-- name: clear_fact
-- Forget a fact.
DELETE FROM session_facts WHERE session_id = ? AND name = ?;

-- name: fact
-- Return a remembered fact.
SELECT value FROM session_facts WHERE session_id = ? AND name = ?;

-- name: facts
-- Return all facts of one name.
SELECT session_id, value FROM session_facts WHERE name = ? ORDER BY session_id;

-- name: bind_key
-- Point a session key at a session.
INSERT INTO session_keys (session_key, session_id, updated_at) VALUES (?, ?, ?)
ON CONFLICT (session_key) DO UPDATE
SET session_id = excluded.session_id, updated_at = excluded.updated_at;

-- name: keys_of
-- Return the keys that point at a session.
SELECT session_key FROM session_keys WHERE session_id = ? ORDER BY session_key;

-- name: id_for_key
-- Return the id of the session that a key points at.
SELECT session_id FROM session_keys WHERE session_key = ?;

-- name: for_key
-- Return the session that a key points at.
SELECT r.* FROM session_keys k JOIN session_rows r ON r.id = k.session_id WHERE k.session_key = ?;

-- name: imported
-- Give an imported session what its origin had counted.
UPDATE sessions SET
  ended_at = :ended_at, end_reason = :end_reason, input_tokens = :input_tokens,
  output_tokens = :output_tokens, cache_read_tokens = :cache_read_tokens,
  cache_write_tokens = :cache_write_tokens, reasoning_tokens = :reasoning_tokens,
  estimated_cost_usd = :estimated_cost_usd
WHERE id = :id;

-- name: imported_parent
-- Point an imported session at the one it came from.
UPDATE sessions SET parent_session_id = :parent, lineage = :lineage
WHERE id = :id AND EXISTS (SELECT 1 FROM sessions WHERE id = :parent);
