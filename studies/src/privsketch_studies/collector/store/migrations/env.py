"""Environment of alembic: migrations run in the transaction of the store that asks for them."""

from alembic import context

from privsketch_studies.collector.store.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    transactional_ddl=True,
    render_as_batch=True,
)
context.run_migrations()
