-- What the answer to a chat message needs again when it is sent.

-- chat_kind: what sort of place the chat is; NULL where only its address is known.
-- context: the adapter's own note, from the message that is answered.
ALTER TABLE outbox ADD COLUMN chat_kind TEXT;
ALTER TABLE outbox ADD COLUMN context TEXT NOT NULL DEFAULT '';
