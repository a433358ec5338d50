"""Follow-up questions about a finished job."""
