"""Who may call, and how much: API keys, the check of them, and limits."""
