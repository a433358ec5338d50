"""Files, collections and sessions in a database."""
