"""Flask as this server uses it: without what no request here needs."""
