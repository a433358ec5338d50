"""Parts of the store in memory."""
