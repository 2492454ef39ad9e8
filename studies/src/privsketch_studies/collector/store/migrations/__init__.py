"""How tables of one version become those of the next; alembic runs what is here."""
