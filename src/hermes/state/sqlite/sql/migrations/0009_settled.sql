-- What was asked for over HTTP leaves the inbox when it is answered, unless a repeat may ask for it.

-- ended_turn: the turn of a run whose message has left the inbox.
ALTER TABLE runs ADD COLUMN ended_turn TEXT;
UPDATE runs SET fingerprint = substr(fingerprint, 1, 32), digest = substr(digest, 1, 32);
DROP VIEW run_rows;
CREATE VIEW run_rows AS
  SELECT r.rowid AS opened, r.*, coalesce(r.ended_turn, i.turn_id) AS turn_id,
    (SELECT m.content FROM messages m WHERE m.id = r.said_id) AS said
  FROM runs r LEFT JOIN inbox i ON i.id = r.inbox_id;
