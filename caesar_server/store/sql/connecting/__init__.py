"""What one process holds of a database: the thread that writes, and connections that read."""
