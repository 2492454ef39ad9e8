"""What is public about a study: domains, schemas, budgets and receipts.

People state domains, schemas and budgets; the library never derives them from records. A receipt
says what a release has spent.
"""
