"""From jobs and their events to the objects that a client is shown."""
