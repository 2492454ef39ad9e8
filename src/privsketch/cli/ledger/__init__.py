"""`privsketch ledger`: limits of data sets, and what was spent of them."""
