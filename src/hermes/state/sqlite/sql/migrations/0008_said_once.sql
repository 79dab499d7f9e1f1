-- What a run answered is kept once, as a message of its session.

-- said_id: the message that is the text of the outcome, which then has none.
ALTER TABLE runs ADD COLUMN said_id INTEGER;
DROP VIEW run_rows;
CREATE VIEW run_rows AS
  SELECT r.rowid AS opened, r.*, i.turn_id,
    (SELECT m.content FROM messages m WHERE m.id = r.said_id) AS said
  FROM runs r LEFT JOIN inbox i ON i.id = r.inbox_id;
