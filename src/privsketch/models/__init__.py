"""What learning gives: models, their files, and the rows they are asked about."""
