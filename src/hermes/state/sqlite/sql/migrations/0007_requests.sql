-- Sessions that were opened for requests only are not kept for ever.

-- for_requests: opened by a request that named no conversation.
ALTER TABLE sessions ADD COLUMN for_requests INTEGER NOT NULL DEFAULT 0;
