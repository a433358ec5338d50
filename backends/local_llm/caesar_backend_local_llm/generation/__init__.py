"""From a request to the events of its answer."""
