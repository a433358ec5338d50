"""What the operator sees from outside: one log line a request, logs as text or JSON, numbers."""
