-- Commands are run behind the commit, in order with what their place says after them.

CREATE INDEX inbox_queued ON inbox(id) WHERE state IN ('queued', 'begun');
