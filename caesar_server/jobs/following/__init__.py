"""How the readers of a job get its records, in the process that runs it and in others."""
