-- name: insert
-- Keep a new key.
INSERT INTO api_keys (id, name, hash, hint, agents, actions, created_at, expires_at, revoked_at,
                      last_used_at)
VALUES (:id, :name, :hash, :hint, :agents, :actions, :created_at, :expires_at, :revoked_at,
        :last_used_at);

-- name: by_id
-- Tell whether there is such a key.
SELECT 1 FROM api_keys WHERE id = ?;

-- name: by_name
-- Tell whether a key has this name.
SELECT 1 FROM api_keys WHERE name = ?;

-- name: by_hash
-- Return the key with this hash.
SELECT * FROM api_keys WHERE hash = ?;

-- name: all
-- List all keys, oldest first.
SELECT * FROM api_keys ORDER BY created_at, rowid;

-- name: good
-- Find a key that is still good, by id or else by name.
SELECT id FROM api_keys
WHERE (id = :reference OR name = :reference) AND revoked_at IS NULL
  AND (expires_at IS NULL OR expires_at > :at)
ORDER BY id = :reference DESC LIMIT 1;

-- name: revoke
-- Revoke a key.
UPDATE api_keys SET revoked_at = ? WHERE id = ? RETURNING *;

-- name: touch
-- Note that a key was used.
UPDATE api_keys SET last_used_at = max(coalesce(last_used_at, :at), :at) WHERE id = :id;
