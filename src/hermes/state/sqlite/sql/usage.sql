-- name: insert
-- Write down one model call.
INSERT INTO model_usage (session_id, turn_id, agent_id, provider, model, task, input_tokens,
                         output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens,
                         estimated_cost_usd, timestamp)
VALUES (:session_id, :turn_id, :agent_id, :provider, :model, :task, :input_tokens,
        :output_tokens, :cache_read_tokens, :cache_write_tokens, :reasoning_tokens,
        :cost_usd, :at);

-- name: count_in_session
-- Add one call to the counters of its session.
UPDATE sessions SET
  input_tokens = input_tokens + :input_tokens,
  output_tokens = output_tokens + :output_tokens,
  cache_read_tokens = cache_read_tokens + :cache_read_tokens,
  cache_write_tokens = cache_write_tokens + :cache_write_tokens,
  reasoning_tokens = reasoning_tokens + :reasoning_tokens,
  estimated_cost_usd = estimated_cost_usd + coalesce(:cost_usd, 0)
WHERE id = :session_id;

-- name: of_settled
-- Return what a turn that is forgotten has spent.
SELECT * FROM model_usage WHERE session_id = ? AND turn_id = ?;

-- name: add_to_hour
-- Add a call to what forgotten turns of its session spent in the same hour.
UPDATE model_usage SET
  calls = calls + :calls,
  input_tokens = input_tokens + :input_tokens,
  output_tokens = output_tokens + :output_tokens,
  cache_read_tokens = cache_read_tokens + :cache_read_tokens,
  cache_write_tokens = cache_write_tokens + :cache_write_tokens,
  reasoning_tokens = reasoning_tokens + :reasoning_tokens,
  estimated_cost_usd = estimated_cost_usd + :estimated_cost_usd
WHERE session_id = :session_id AND turn_id IS NULL AND agent_id = :agent_id
  AND provider = :provider AND model = :model AND task = :task
  AND (estimated_cost_usd IS NULL) = (:estimated_cost_usd IS NULL)
  AND CAST(timestamp / 3600 AS INTEGER) = CAST(:timestamp / 3600 AS INTEGER);

-- name: delete
-- Forget a call that was added to another.
DELETE FROM model_usage WHERE id = ?;

-- name: leave_turn
-- Keep a call without its turn.
UPDATE model_usage SET turn_id = NULL WHERE id = ?;

-- name: spent_in_session
-- Sum up what one session and the child turns that it asked for spent from a time on.
WITH RECURSIVE family(id) AS (
  VALUES (:session_id)
  UNION
  SELECT sessions.id FROM sessions JOIN family ON sessions.parent_session_id = family.id
  WHERE sessions.lineage = 'delegation'
)
SELECT coalesce(sum(calls), 0) AS calls, coalesce(sum(input_tokens + output_tokens), 0) AS tokens,
       coalesce(sum(estimated_cost_usd), 0.0) AS cost_usd,
       coalesce(sum(iif(estimated_cost_usd IS NULL, calls, 0)), 0) AS unpriced_calls
FROM model_usage
WHERE session_id IN family AND timestamp >= :since
  AND (:agent_id IS NULL OR agent_id = :agent_id);

-- name: spent_since
-- Sum up what was spent from a time on.
SELECT coalesce(sum(calls), 0) AS calls, coalesce(sum(input_tokens + output_tokens), 0) AS tokens,
       coalesce(sum(estimated_cost_usd), 0.0) AS cost_usd,
       coalesce(sum(iif(estimated_cost_usd IS NULL, calls, 0)), 0) AS unpriced_calls
FROM model_usage
WHERE timestamp >= :since AND (:agent_id IS NULL OR agent_id = :agent_id);

-- name: by_model
-- Sum up by provider and model, dearest first.
SELECT provider, model, sum(calls) AS calls,
       coalesce(sum(input_tokens + output_tokens), 0) AS tokens,
       coalesce(sum(estimated_cost_usd), 0.0) AS cost_usd,
       coalesce(sum(iif(estimated_cost_usd IS NULL, calls, 0)), 0) AS unpriced_calls
FROM model_usage
WHERE :session_id IS NULL OR session_id = :session_id
GROUP BY provider, model
ORDER BY cost_usd DESC, tokens DESC, provider, model;

-- name: of_turn
-- Sum up the replies of one turn and of the child turns that it waited for, which were admitted
-- under its id; no cost if that of a reply is unknown.
WITH RECURSIVE family(turn_id, session_id) AS (
  SELECT id, session_id FROM turns WHERE id = ?
  UNION
  SELECT inbox.turn_id, inbox.session_id FROM inbox JOIN family
  ON inbox.platform = 'task' AND inbox.account = ''
    AND inbox.native_id BETWEEN family.turn_id || ':' AND family.turn_id || ';'
  WHERE inbox.turn_id IS NOT NULL AND inbox.message ->> '$.reply_context' IS NOT 'background'
)
SELECT count(*) AS calls,
       coalesce(sum(input_tokens), 0) AS input_tokens,
       coalesce(sum(output_tokens), 0) AS output_tokens,
       coalesce(sum(cache_read_tokens), 0) AS cache_read_tokens,
       coalesce(sum(cache_write_tokens), 0) AS cache_write_tokens,
       coalesce(sum(reasoning_tokens), 0) AS reasoning_tokens,
       CASE WHEN count(*) = count(estimated_cost_usd)
            THEN coalesce(sum(estimated_cost_usd), 0.0) END AS cost_usd
FROM family CROSS JOIN model_usage USING (session_id, turn_id)
WHERE task = 'turn';
