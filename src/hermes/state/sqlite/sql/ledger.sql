-- name: stats
-- Count what is there.
SELECT
  (SELECT count(*) FROM sessions) AS sessions,
  (SELECT count(*) FROM messages) AS messages,
  (SELECT count(*) FROM turns)
    + (SELECT coalesce(sum(settled_turns), 0) FROM sessions) AS turns,
  (SELECT count(*) FROM turns WHERE finished_at IS NULL) AS open_turns,
  (SELECT count(*) FROM inbox WHERE state = 'waiting')
    + (SELECT count(*) FROM inbox WHERE state IN ('queued', 'begun')) AS inbox_waiting,
  (SELECT count(*) FROM outbox WHERE state IN ('pending', 'sending')) AS outbox_pending,
  (SELECT count(*) FROM approvals WHERE state = 'pending') AS approvals_pending,
  (SELECT page_count FROM pragma_page_count()) * (SELECT page_size FROM pragma_page_size()) AS bytes,
  (SELECT user_version FROM pragma_user_version()) AS schema_version;

-- name: by_source
-- Count the sessions of each door.
SELECT source, count(*) AS sessions FROM sessions GROUP BY source ORDER BY source;

-- name: keep
-- Keep a fact that belongs to no session.
INSERT INTO facts (name, value) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: forget
-- Remove such a fact.
DELETE FROM facts WHERE name = ?;

-- name: kept
-- Return such a fact.
SELECT value FROM facts WHERE name = ?;
