"""How the tables came to be what they are; run by :mod:`caesar_server.store.sql.revisions`."""
