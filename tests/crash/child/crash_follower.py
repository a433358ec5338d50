"""Follows jobs in a process of its own, and lets go of each at random points.

Reads ids from its input, one a line; prints for each job, once it has ended, its id and the numbers
of the records in the order in which they came.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from caesar_server.jobs.following.watch import Watch
from caesar_server.settings import Settings
from caesar_server.store.base import Record, Store
from caesar_server.store.opening import open_store

#: Chance that it lets go after a take, and the most records that it keeps of one.
DROPS = 0.3


def main() -> None:
    store = open_store(Settings(store=sys.argv[1]))
    watch = Watch(store, on_change=lambda: None, time=time.time)
    printing = threading.Lock()

    def tell(job_id: str) -> None:
        records, begins = follow(store, watch, job_id, random.Random(job_id))
        seqs = [record.seq for record in records]
        with printing:
            print(json.dumps({"id": job_id, "seqs": seqs, "begins": begins}), flush=True)

    with ThreadPoolExecutor(64) as pool:
        for line in sys.stdin:
            pool.submit(tell, line.strip())
    watch.close()
    store.close()


def follow(
    store: Store, watch: Watch, job_id: str, chance: random.Random
) -> tuple[list[Record], int]:
    """Return what came of a job until its end, and how often it was begun to be followed."""
    kept: list[Record] = []
    begins = 0
    while True:
        begins += 1
        follower = watch.follow(store.job(job_id), kept[-1].seq if kept else 0)
        try:
            while not follower.drained:
                taken = follower.take(60)
                if chance.random() < DROPS and len(taken) > 1:
                    # as if the connection had broken in the midst of them
                    kept += taken[: chance.randrange(len(taken))]
                    break
                kept += taken
            else:
                return kept, begins
        finally:
            follower.leave()


main()
