"""One run of a job: its events, their rules, their way into the store."""
