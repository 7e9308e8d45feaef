"""The span table: one row a span, and what columns, identities and intervals it is made of."""
