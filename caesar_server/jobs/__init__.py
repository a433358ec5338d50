"""Running a request: one job, its events, its limits and its end."""
