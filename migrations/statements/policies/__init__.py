"""Row policies as statements: what defines them, and the writes that they let through. Reads have them in the plan."""
