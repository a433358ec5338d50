"""How much is done at once, and for whom: places, rates, quotas."""
