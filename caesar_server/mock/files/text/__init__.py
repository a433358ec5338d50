"""From the text of a file to data, with the place of each value."""
