-- A chat that goes on takes no more than what is said: of a request that another one continues only
-- the id and the place where it ended are kept, with the last message of its answer.

-- ends: of the key, the agent and everything said up to the question that this message answers.
-- run: the id of that request, without `chatcmpl-`.
ALTER TABLE messages ADD COLUMN ends TEXT;
ALTER TABLE messages ADD COLUMN run TEXT;
CREATE INDEX messages_by_end ON messages(ends) WHERE ends IS NOT NULL;

-- settled_turns: those of such requests.
ALTER TABLE sessions ADD COLUMN settled_turns INTEGER NOT NULL DEFAULT 0;
DROP VIEW session_rows;
CREATE VIEW session_rows AS
  SELECT s.rowid AS opened, s.*, p.system_prompt,
    (SELECT json_group_object(f.name, json(f.value))
       FROM session_facts f WHERE f.session_id = s.id) AS state
  FROM sessions s LEFT JOIN session_prompts p ON p.session_id = s.id;
