-- name: indexed_through
-- Return the id of the last message in the index.
SELECT CAST(value AS INTEGER) AS id FROM state_meta WHERE key = 'indexed_through';

-- name: newest_message
-- Return the id of the newest message.
SELECT coalesce(max(id), 0) AS id FROM messages;

-- name: batch_end
-- Return the last id of the next piece to index.
SELECT max(id) AS id FROM (SELECT id FROM messages WHERE id > ? ORDER BY id LIMIT ?);

-- name: index_words
-- Add a range of messages to the index of words.
INSERT INTO messages_fts (rowid, text) SELECT id, text FROM messages_text WHERE id > ? AND id <= ?;

-- name: index_trigrams
-- Add a range of messages to the index of substrings.
INSERT INTO messages_fts_trigram (rowid, text)
SELECT id, text FROM messages_text WHERE id > ? AND id <= ?;

-- name: clear_words
-- Empty the index of words.
INSERT INTO messages_fts (messages_fts) VALUES ('delete-all');

-- name: clear_trigrams
-- Empty the index of substrings.
INSERT INTO messages_fts_trigram (messages_fts_trigram) VALUES ('delete-all');

-- name: set_indexed
-- Move the watermark.
UPDATE state_meta SET value = ? WHERE key = 'indexed_through';

-- name: forget_words
-- Take a session's messages out of the index of words.
INSERT INTO messages_fts (messages_fts, rowid, text)
SELECT 'delete', id, text FROM messages_text
WHERE id IN (SELECT id FROM messages WHERE session_id = :session_id AND id <= :indexed);

-- name: forget_trigrams
-- Take a session's messages out of the index of substrings.
INSERT INTO messages_fts_trigram (messages_fts_trigram, rowid, text)
SELECT 'delete', id, text FROM messages_text
WHERE id IN (SELECT id FROM messages WHERE session_id = :session_id AND id <= :indexed);

-- name: session_range
-- Return the ids between which a session's messages lie.
SELECT coalesce(min(id), 0) AS low, coalesce(max(id), -1) AS high FROM messages WHERE session_id = ?;

-- name: by_words
-- Return the newest messages in the index that match words.
SELECT rowid AS id FROM messages_fts
WHERE messages_fts MATCH :match AND rowid BETWEEN :low AND :high ORDER BY rowid DESC LIMIT :scan;

-- name: by_trigrams
-- Return the newest messages in the index that match trigrams.
SELECT rowid AS id FROM messages_fts_trigram
WHERE messages_fts_trigram MATCH :match AND rowid BETWEEN :low AND :high
ORDER BY rowid DESC LIMIT :scan;

-- name: texts
-- Return what can be found of the newest messages, without an index.
SELECT id, text FROM messages_text WHERE id BETWEEN :low AND :high ORDER BY id DESC LIMIT :scan;

-- name: candidates
-- Return the newest of some messages that pass the filters.
SELECT c.*, t.text FROM (
  SELECT m.id, m.session_id, m.seq, m.role, m.timestamp, s.title, s.source,
         m.turn_id IS NULL AND s.parent_session_id IS NOT NULL AS copied
  FROM (SELECT value AS id FROM json_each(:ids)) f
  JOIN messages m ON m.id = f.id
  JOIN sessions s ON s.id = m.session_id
  WHERE (:session_id IS NULL OR m.session_id = :session_id)
    AND (:agent_id IS NULL OR s.agent_id = :agent_id)
    AND (:source IS NULL OR s.source = :source)
    AND (:user_id IS NULL OR s.user_id = :user_id)
    AND (:owner IS NULL OR s.user_id = :owner
         OR substr(s.user_id, 1, length(:owner) + 1) = :owner || '/')
    AND m.session_id NOT IN (SELECT value FROM json_each(:exclude_session_ids))
    AND (:roles = '[]' OR m.role IN (SELECT value FROM json_each(:roles)))
  ORDER BY m.id DESC LIMIT :candidates) c
JOIN messages_text t ON t.id = c.id
ORDER BY c.id DESC;

-- name: terms
-- List the trigrams in a range of the alphabet.
SELECT term FROM messages_fts_terms WHERE term >= :low AND term <= :high LIMIT :limit;
