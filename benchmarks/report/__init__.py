"""Results for people: tables in the terminal and in Markdown, plots, and what became of the aims."""
