"""The planner, judged by plans as text, by errors, and by evaluating what it planned against SQLite."""
