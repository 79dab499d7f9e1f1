-- A turn of a web chat costs little more than its text: what turns that are forgotten spent is one
-- row an hour and session.

-- calls: for how many model calls a row stands.
ALTER TABLE model_usage ADD COLUMN calls INTEGER NOT NULL DEFAULT 1;

-- Nobody asks by time alone.
DROP INDEX model_usage_by_time;
