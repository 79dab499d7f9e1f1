-- name: recognise
-- Note which delivery brought what was signed; return the first that did not come before :since.
INSERT INTO hook_proofs (route, proof, delivery_id, seen_at)
VALUES (:route, :proof, :delivery_id, :at)
ON CONFLICT (route, proof) DO UPDATE
SET delivery_id = CASE WHEN seen_at < :since THEN excluded.delivery_id ELSE delivery_id END,
    seen_at = CASE WHEN seen_at < :since THEN excluded.seen_at ELSE seen_at END
RETURNING *;

-- name: receive
-- Commit a delivery, or take one again that failed; nothing for any other that is known.
INSERT INTO hook_deliveries (route, delivery_id, event, state, attempt, received_at, updated_at,
                             session_id, prompt, target, target_extra, deliver_only, error)
VALUES (:route, :delivery_id, :event, :state, :attempt, :received_at, :updated_at,
        :session_id, :prompt, :target, :target_extra, :deliver_only, :error)
ON CONFLICT (route, delivery_id) DO UPDATE SET
  event = excluded.event, state = excluded.state, attempt = hook_deliveries.attempt + 1,
  received_at = excluded.received_at, updated_at = excluded.updated_at,
  session_id = excluded.session_id, prompt = excluded.prompt, target = excluded.target,
  target_extra = excluded.target_extra, deliver_only = excluded.deliver_only,
  error = excluded.error
WHERE hook_deliveries.state = 'failed'
RETURNING *;

-- name: update
-- Record how far a delivery has come; NULL leaves a column as it is.
UPDATE hook_deliveries SET state = :state, updated_at = max(updated_at, :at),
  session_id = coalesce(:session_id, session_id), error = coalesce(:error, error)
WHERE route = :route AND delivery_id = :delivery_id
RETURNING *;

-- name: get
-- Return one delivery.
SELECT * FROM hook_deliveries WHERE route = ? AND delivery_id = ?;

-- name: matching
-- List deliveries in some states, oldest first.
SELECT * FROM hook_deliveries
WHERE state IN (SELECT value FROM json_each(:states))
ORDER BY received_at, rowid LIMIT :limit;

-- name: prune
-- Forget deliveries that were over before a time.
DELETE FROM hook_deliveries
WHERE state IN ('done', 'failed', 'ignored') AND updated_at < ?;

-- name: prune_proofs
-- Forget what was signed and not seen since a time.
DELETE FROM hook_proofs WHERE seen_at < ?;
