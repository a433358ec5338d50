"""The surfaces: families of URLs.  They do not import each other."""
