-- name: known
-- Tell whether an agent has anything here.
SELECT 1 FROM sessions WHERE agent_id = ? UNION ALL SELECT 1 FROM inbox WHERE agent_id = ? LIMIT 1;

-- name: rename_sessions
-- Give the sessions of an agent to another name, and those in its home to the new home.
UPDATE sessions SET agent_id = :new, cwd = CASE
    WHEN cwd = :old_home OR substr(cwd, 1, length(:old_home) + 1) = :old_home || '/'
    THEN :new_home || substr(cwd, length(:old_home) + 1) ELSE cwd END
WHERE agent_id = :old;

-- name: rename_session_keys
-- Give the places where an agent talks to another name.
UPDATE session_keys SET session_key = 'agent:' || :new || substr(session_key, length(:old) + 7)
WHERE substr(session_key, 1, length(:old) + 7) = 'agent:' || :old || ':';

-- name: rename_inbox
-- Give what arrived for an agent to another name.
UPDATE inbox SET agent_id = :new, session_key = CASE
    WHEN substr(session_key, 1, length(:old) + 7) = 'agent:' || :old || ':'
    THEN 'agent:' || :new || substr(session_key, length(:old) + 7) ELSE session_key END
WHERE agent_id = :old;

-- name: rename_turns
-- The same for `turns`.
UPDATE turns SET agent_id = :new WHERE agent_id = :old;

-- name: rename_outbox
-- The same for `outbox`.
UPDATE outbox SET agent_id = :new WHERE agent_id = :old;

-- name: rename_approvals
-- The same for `approvals`.
UPDATE approvals SET agent_id = :new WHERE agent_id = :old;

-- name: rename_model_usage
-- The same for `model_usage`.
UPDATE model_usage SET agent_id = :new WHERE agent_id = :old;

-- name: rename_runs
-- The same for `runs`.
UPDATE runs SET agent_id = :new WHERE agent_id = :old;

-- name: rename_api_keys
-- Bind the keys of an agent to another name.
UPDATE api_keys
SET agents = (SELECT json_group_array(iif(value = :old, :new, value)) FROM json_each(agents))
WHERE EXISTS (SELECT 1 FROM json_each(agents) WHERE value = :old);
