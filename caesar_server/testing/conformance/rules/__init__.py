"""The rules, each a function that tries it; ``RULES`` of the package above puts them in order."""
