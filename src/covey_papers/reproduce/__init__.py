"""Both papers, table by table, beside what covey measures."""
