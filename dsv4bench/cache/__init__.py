"""The seven paged cache groups: layout, page allocation and slot arithmetic."""
