"""Where jobs and their events are kept."""
