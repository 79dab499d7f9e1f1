-- What the signatures of webhook deliveries cover, where that leaves the sender's id out:
-- who sends the same bytes again under another id repeats a delivery.

CREATE TABLE hook_proofs (
  route       TEXT NOT NULL,
  proof       TEXT NOT NULL,
  delivery_id TEXT NOT NULL,
  seen_at     REAL NOT NULL,
  PRIMARY KEY (route, proof)
) STRICT, WITHOUT ROWID;
