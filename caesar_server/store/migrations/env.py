"""Run by Alembic for each command, with the connection and the transaction that it was given."""

from alembic import context

from caesar_server.store.sql.schema import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
)
with context.begin_transaction():
    context.run_migrations()
