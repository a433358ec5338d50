"""What the mock is told and what it sees, as values: calls, rules, replies, faults, pacing."""
