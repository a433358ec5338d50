"""A process that claims jobs and runs them, for tests that stop, kill and fool it.

Called with the store's URL, its name as an owner, its lease in seconds and the records of a job.
Prints ``ready`` once it holds a lease, ``claimed ID`` for each job.
"""

import sys
import threading
import time

from caesar_server.contract import Completed, ContentDelta
from caesar_server.settings import Settings
from caesar_server.store.base import FencedError, Job, Record, Store
from caesar_server.store.checkpoints import Checkpoint
from caesar_server.store.opening import open_store


def main() -> None:
    url, owner, lease_s, records = sys.argv[1:]
    store = open_store(Settings(store=url))
    store.renew(owner, float(lease_s))
    threading.Thread(target=renew, args=(store, owner, float(lease_s)), daemon=True).start()
    print("ready", flush=True)
    while True:
        job = store.claim_next(owner, ["b"])
        if job is None:
            pause(0.01)
            continue
        print(f"claimed {job.id}", flush=True)
        try:
            run(store, job, int(records))
        except FencedError:
            print(f"fenced {job.id}", flush=True)


def renew(store: Store, owner: str, lease_s: float) -> None:
    while True:
        pause(lease_s / 3)
        store.renew(owner, lease_s)


def pause(seconds: float) -> None:
    # not time.sleep: libfaketime 0.9.10 makes nonsense of its absolute moment
    threading.Event().wait(seconds)


def run(store: Store, job: Job, records: int) -> None:
    """Go on where an earlier attempt came to, two records at a time."""
    last = job.last_seq
    while last < records:
        batch = [Record(seq, time.time(), ContentDelta(f"{seq} ")) for seq in (last + 1, last + 2)]
        last += 2
        store.append(job.id, job.attempt, batch, checkpoint=Checkpoint({"upto": last}))
    store.append(job.id, job.attempt, [Record(last + 1, time.time(), Completed())])


main()
