-- name: of_job
-- List the instants of a job, newest first.
SELECT * FROM job_instants WHERE job_id = ? ORDER BY due_at DESC LIMIT ?;
