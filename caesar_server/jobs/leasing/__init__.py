"""Which process runs which job: leases, claims and what becomes of lost jobs."""
