"""Reports: tables in the terminal and in Markdown, plots, and the performance targets."""
