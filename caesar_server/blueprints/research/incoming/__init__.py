"""What clients send, as values."""
