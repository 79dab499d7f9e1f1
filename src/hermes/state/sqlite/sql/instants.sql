-- name: claim
-- Commit the row of a due instant unless there is one.
INSERT INTO job_instants (job_id, due_at, source, status, delivery, claimed_by, started_at,
                          finished_at, session_id, error, delivery_error, detail)
VALUES (:job_id, :due_at, :source, :status, :delivery, :claimed_by, :started_at,
        :finished_at, :session_id, :error, :delivery_error, :detail)
ON CONFLICT (job_id, due_at) DO NOTHING;

-- name: settle
-- Replace the row of an instant.
UPDATE job_instants SET source = :source, status = :status, delivery = :delivery,
  claimed_by = :claimed_by, started_at = :started_at, finished_at = :finished_at,
  session_id = :session_id, error = :error, delivery_error = :delivery_error, detail = :detail
WHERE job_id = :job_id AND due_at = :due_at;

-- name: of_job
-- List the instants of a job, newest first.
SELECT * FROM job_instants WHERE job_id = ? ORDER BY due_at DESC LIMIT ?;
