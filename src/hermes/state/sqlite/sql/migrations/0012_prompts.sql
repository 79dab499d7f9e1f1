-- Sessions that were given the same prompt share it: requests that are sessions of their own cost little.

CREATE TABLE prompts (
  id   INTEGER PRIMARY KEY,
  hash TEXT NOT NULL UNIQUE,
  text TEXT NOT NULL
) STRICT;
INSERT OR IGNORE INTO prompts (hash, text)
SELECT hash_of(system_prompt), system_prompt FROM session_prompts;

ALTER TABLE sessions ADD COLUMN prompt_id INTEGER;
UPDATE sessions SET prompt_id = (
  SELECT p.id FROM session_prompts s JOIN prompts p ON p.hash = hash_of(s.system_prompt)
  WHERE s.session_id = sessions.id);

DROP VIEW session_rows;
DROP TABLE session_prompts;
CREATE VIEW session_rows AS
  SELECT s.rowid AS opened, s.*, p.text AS system_prompt,
    (SELECT json_group_object(f.name, json(f.value))
       FROM session_facts f WHERE f.session_id = s.id) AS state
  FROM sessions s LEFT JOIN prompts p ON p.id = s.prompt_id;

-- Nobody looks for these: pruning goes by when a run was opened.
DROP INDEX runs_by_inbox;
DROP INDEX runs_ended;
