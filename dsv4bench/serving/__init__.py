"""`dsv4bench serve`: the embedded engine behind the HTTP interface of pypto-serving (docs/serving.md)."""
