"""The bytes: keys, columns and values of the tables. Imports the store's interface and errors only."""
