"""The store in a database: SQLite for one machine, PostgreSQL for several."""
