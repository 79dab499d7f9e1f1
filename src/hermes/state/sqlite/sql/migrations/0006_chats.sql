-- A client that sends the whole chat with each request is recognised by what was said up to the
-- request before.

-- digest: of everything said up to and with the request; NULL where nobody looks for it.
ALTER TABLE runs ADD COLUMN digest TEXT;
CREATE INDEX runs_by_digest ON runs(key_id, digest, created_at) WHERE digest IS NOT NULL;
