-- Titles are unique among the sessions of one API key, and among all others:
-- what other keys call their sessions must not show in a refusal or a number.

DROP INDEX one_session_a_title;
CREATE UNIQUE INDEX one_session_a_title
  ON sessions(title, CASE source WHEN 'api_server' THEN coalesce(user_id, '') ELSE '' END)
  WHERE title IS NOT NULL;
