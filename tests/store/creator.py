"""A process that adds to one account, in many threads at once, for tests of what is exact.

Called with the store's URL, its name and what to do: ``quota`` creates jobs, of which the account
may have five; ``session`` creates jobs that all use one session; ``files`` adds files of equal
bytes, of which it may have five; ``collections`` likewise.  Prints ``ready``, waits for a line, and
prints the ids of what was added, then ``end``.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

from caesar_server.contract import ResearchRequest
from caesar_server.settings import Settings
from caesar_server.store.base import Job, Store
from caesar_server.store.opening import open_store
from caesar_server.store.owned.base import (
    FileQuota,
    FileQuotaExceededError,
    OwnedCollection,
    OwnedFile,
    SessionUsedError,
    TooManyCollectionsError,
)
from caesar_server.store.quotas import Quota, QuotaExceededError

REFUSALS = (
    QuotaExceededError,
    FileQuotaExceededError,
    SessionUsedError,
    TooManyCollectionsError,
)
QUOTA = Quota(month="2023-11", jobs_in_progress=5, loops=100)


def main() -> None:
    url, name, what = sys.argv[1:]
    store = open_store(Settings(store=url))
    store.check()
    print("ready", flush=True)
    sys.stdin.readline()
    with ThreadPoolExecutor(25) as pool:
        for added in pool.map(lambda number: add(store, f"{name}-{number}", what), range(25)):
            if added is not None:
                print(f"added {added}", flush=True)
    store.close()
    print("end", flush=True)


def add(store: Store, id: str, what: str) -> str | None:
    try:
        if what == "files":
            file = OwnedFile(
                id=id,
                account="a",
                created_at=1.0,
                name="n",
                content_type="text/plain",
                size=3,
                sha256="00",
                key=id,
            )
            return store.owned.add_file(file, FileQuota(files=5)).key
        if what == "collections":
            collection = OwnedCollection(
                id=id, account="a", created_at=1.0, updated_at=1.0, name="n"
            )
            store.owned.add_collection(collection, 5)
            return id
        job = Job(
            id=id,
            account="a",
            created_at=1.0,
            model="m",
            backend="b",
            request=ResearchRequest(query="q"),
            session_id="s" if what == "session" else None,
        )
        store.create(job, quota=QUOTA)
    except REFUSALS:
        return None
    return id


main()
