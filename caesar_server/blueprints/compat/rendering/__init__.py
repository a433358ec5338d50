"""From the events of a job to OpenAI's objects and frames."""
