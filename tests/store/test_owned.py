"""Files, collections and sessions: what every store promises of them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from caesar_server.contract import Completed, CompletionRequest, LoopFinished
from caesar_server.contract.context import Update
from caesar_server.store.base import Job, Record, Store, StoreError
from caesar_server.store.memory import MemoryStore
from caesar_server.store.owned.base import (
    FileQuota,
    FileQuotaExceededError,
    OwnedCollection,
    OwnedFile,
    OwnedSession,
    OwnedStore,
    TooManyCollectionsError,
    UnknownOwnedError,
)
from caesar_server.store.quotas import Quota, Standing

OpenStore = Callable[..., Store]
NewJob = Callable[..., Job]

#: What a client may send, though it is no text for a database.
ODD = "é\u2028\0\ud800"
NO_IDS = ["nothing", "no\0id", "\ud800", ""]
NO_LIMIT = FileQuota()


@pytest.fixture
def owned(store: Store) -> OwnedStore:
    return store.owned


def file(id: str = "f", **fields: Any) -> OwnedFile:
    values: dict[str, Any] = {
        "account": "x",
        "created_at": 1.5,
        "name": "n",
        "content_type": "text/plain",
        "size": 3,
        # of bytes of its own
        "sha256": f"sha256 of {id}",
        "key": f"key of {id}",
    }
    return OwnedFile(id=id, **{**values, **fields})


def collection(id: str = "c", **fields: Any) -> OwnedCollection:
    values: dict[str, Any] = {"account": "x", "created_at": 1.5, "updated_at": 1.5, "name": "n"}
    return OwnedCollection(id=id, **{**values, **fields})


def session(id: str = "s", **fields: Any) -> OwnedSession:
    values: dict[str, Any] = {"account": "x", "created_at": 1.5, "query": "q"}
    return OwnedSession(id=id, **{**values, **fields})


def add_files(owned: OwnedStore, *files: OwnedFile) -> None:
    for one in files:
        owned.add_file(one, NO_LIMIT)


# files


@pytest.mark.parametrize(
    "added",
    [file(), file(account="", name=ODD, content_type=f"a/b; c={ODD}", size=2**40)],
)
def test_a_file_is_returned_as_it_was_added(owned: OwnedStore, added: OwnedFile) -> None:
    assert owned.add_file(added, NO_LIMIT) == added
    assert owned.file(added.account, "f") == added
    assert list(owned.files(added.account)) == [added]


def test_a_file_is_its_accounts_alone(owned: OwnedStore) -> None:
    owned.add_file(file(), NO_LIMIT)
    for call in (
        lambda: owned.file("y", "f"),
        lambda: owned.delete_file("y", "f"),
        *(lambda id=id: owned.file("x", id) for id in NO_IDS),
        *(lambda id=id: owned.delete_file("x", id) for id in NO_IDS),
    ):
        with pytest.raises(UnknownOwnedError):
            call()
    assert list(owned.files("y")) == list(owned.files("y", ids=["f"])) == []
    assert owned.count_files("y") == (0, 0)
    assert owned.file("x", "f") == file()


def test_files_are_listed_newest_first_page_by_page(owned: OwnedStore) -> None:
    add_files(owned, *(file(f"f{n}", created_at=float(n // 2)) for n in range(7)))
    owned.add_file(file("other", account="y"), NO_LIMIT)

    def ids(**chosen: Any) -> list[str]:
        return [one.id for one in owned.files("x", **chosen)]

    assert ids() == ["f6", "f5", "f4", "f3", "f2", "f1", "f0"]
    assert ids(limit=3) == ["f6", "f5", "f4"]
    assert ids(limit=3, offset=5) == ["f1", "f0"]
    assert ids(offset=6) == ["f0"]
    assert ids(offset=7) == []
    assert ids(ids=["f1", "f4", "f1", "other", *NO_IDS]) == ["f4", "f1"]
    assert ids(ids=["f1", "f4", "f5"], offset=1, limit=1) == ["f4"]
    assert ids(ids=[]) == []
    assert ids(ids=[f"f{n}" for n in range(3000)]) == ids()


def test_an_id_of_a_file_exists_only_once(owned: OwnedStore) -> None:
    owned.add_file(file(), NO_LIMIT)
    with pytest.raises(ValueError, match="exists"):
        owned.add_file(file(account="y"), NO_LIMIT)
    assert list(owned.files("y")) == []


def test_a_key_whose_bytes_are_lost_is_replaced(owned: OwnedStore) -> None:
    add_files(owned, file("f", sha256="s"), file("g", sha256="s"), file("h"))
    add_files(owned, file("i", account="y", key="key of f"))
    assert owned.replace_key("x", "key of f", "new")
    assert [one.key for one in owned.files("x", ids=["f", "g"])] == ["new", "new"]
    assert owned.file("x", "h").key == "key of h"
    assert owned.file("y", "i").key == "key of f"
    assert owned.replace_key("x", "key of f", "new")
    assert not owned.replace_key("x", "key of f", "newer")


# bytes that are equal


def test_files_of_equal_bytes_of_one_account_share_a_key(owned: OwnedStore) -> None:
    equal = {"sha256": "same", "size": 3}
    assert owned.add_file(file("a", **equal), NO_LIMIT).key == "key of a"
    assert owned.add_file(file("b", **equal), NO_LIMIT) == file("b", **equal, key="key of a")
    assert owned.file("x", "b").key == "key of a"
    assert owned.add_file(file("y", account="y", **equal), NO_LIMIT).key == "key of y"
    assert owned.add_file(file("c", sha256="same", size=4), NO_LIMIT).key == "key of c"
    assert owned.count_files("x") == (3, 10)
    keys = ["key of a", "key of b", "key of y", *NO_IDS]
    assert set(owned.used_keys(keys)) == {"key of a", "key of y"}
    assert owned.delete_file("x", "a") is None
    assert owned.add_file(file("d", **equal), NO_LIMIT).key == "key of a"
    assert owned.delete_file("x", "b") is None
    assert owned.delete_file("x", "d") == "key of a"
    assert owned.add_file(file("e", **equal), NO_LIMIT).key == "key of e"
    assert set(owned.used_keys(keys)) == {"key of y"}
    assert list(owned.used_keys([])) == []


# room for files


def test_with_so_many_files_there_is_no_room_for_another(owned: OwnedStore) -> None:
    quota = FileQuota(files=2, bytes=100)
    for id in ("a", "b"):
        owned.add_file(file(id), quota)
    with pytest.raises(FileQuotaExceededError) as refused:
        owned.add_file(file("c", size=1000), quota)
    assert refused.value.limit == "files"
    owned.add_file(file("other", account="y"), quota)
    owned.delete_file("x", "a")
    owned.add_file(file("c"), quota)
    assert [one.id for one in owned.files("x")] == ["c", "b"]


def test_bytes_count_as_often_as_they_were_uploaded(owned: OwnedStore) -> None:
    quota = FileQuota(bytes=10)
    equal = {"sha256": "same", "size": 5}
    owned.add_file(file("a", **equal), quota)
    owned.add_file(file("b", **equal), quota)
    for size in (1, 5):
        with pytest.raises(FileQuotaExceededError) as refused:
            owned.add_file(file("c", sha256="same", size=size), quota)
        assert refused.value.limit == "bytes"
    owned.add_file(file("empty", size=0), quota)
    assert owned.count_files("x") == (3, 10)


def test_of_many_files_added_at_once_as_many_come_to_be_as_may(owned: OwnedStore) -> None:
    def add(number: int) -> bool:
        try:
            owned.add_file(file(f"f{number}", sha256="same"), FileQuota(files=4))
        except FileQuotaExceededError:
            return False
        return True

    with ThreadPoolExecutor(8, thread_name_prefix="test") as pool:
        assert sum(pool.map(add, range(24))) == 4
    assert len({one.key for one in owned.files("x")}) == 1


# collections


@pytest.mark.parametrize("added", [collection(), collection(name=ODD, description=ODD)])
def test_a_collection_is_returned_as_it_was_added(
    owned: OwnedStore, added: OwnedCollection
) -> None:
    owned.add_collection(added)
    assert owned.collection("x", "c") == added
    assert list(owned.collections("x")) == [added]
    with pytest.raises(ValueError, match="exists"):
        owned.add_collection(collection(account="y", name="another"))
    assert owned.collection("x", "c") == added


def test_with_so_many_collections_there_is_no_room_for_another(owned: OwnedStore) -> None:
    for id in ("a", "b"):
        owned.add_collection(collection(id), 2)
    with pytest.raises(TooManyCollectionsError):
        owned.add_collection(collection("c"), 2)
    owned.add_collection(collection("other", account="y"), 2)
    owned.delete_collection("x", "a")
    owned.add_collection(collection("c"), 2)
    owned.add_collection(collection("d"))
    assert [one.id for one in owned.collections("x")] == ["d", "c", "b"]


def test_of_many_collections_added_at_once_as_many_come_to_be_as_may(owned: OwnedStore) -> None:
    def add(number: int) -> bool:
        try:
            owned.add_collection(collection(f"c{number}"), 4)
        except TooManyCollectionsError:
            return False
        return True

    with ThreadPoolExecutor(8, thread_name_prefix="test") as pool:
        assert sum(pool.map(add, range(24))) == 4
    assert owned.count_collections("x") == 4


@pytest.mark.parametrize(("account", "id"), [("y", "c"), *(("x", id) for id in NO_IDS)])
def test_a_collection_is_its_accounts_alone(owned: OwnedStore, account: str, id: str) -> None:
    owned.add_collection(collection())
    for call in (
        lambda: owned.collection(account, id),
        lambda: owned.delete_collection(account, id),
        lambda: owned.change_collection(account, id, updated_at=2.0, changes={"name": "m"}),
        lambda: owned.add_file(file(account=account, collection_id=id), NO_LIMIT),
    ):
        with pytest.raises(UnknownOwnedError):
            call()
    assert list(owned.collections("y")) == list(owned.files("y")) == list(owned.files("x")) == []
    assert (owned.count_collections("x"), owned.count_collections("y")) == (1, 0)
    assert owned.collection("x", "c") == collection()


def test_collections_are_listed_newest_first_page_by_page(owned: OwnedStore) -> None:
    for n in range(5):
        owned.add_collection(collection(f"c{n}", created_at=float(n // 2)))

    def ids(**chosen: Any) -> list[str]:
        return [one.id for one in owned.collections("x", **chosen)]

    assert ids() == ["c4", "c3", "c2", "c1", "c0"]
    assert ids(offset=1, limit=2) == ["c3", "c2"]
    assert ids(ids=["c0", "c3", *NO_IDS]) == ["c3", "c0"]
    assert owned.count_collections("x") == 5


@pytest.mark.parametrize(
    ("changes", "name", "description"),
    [
        ({}, "n", "d"),
        ({"name": ODD}, ODD, "d"),
        ({"description": ODD}, "n", ODD),
        ({"description": None}, "n", None),
        ({"name": "m", "description": "e"}, "m", "e"),
        ({"name": None}, "n", "d"),
    ],
)
def test_only_what_is_named_of_a_collection_is_changed(
    owned: OwnedStore, changes: Any, name: str, description: str | None
) -> None:
    owned.add_collection(collection(description="d"))
    owned.add_collection(collection("other"))
    changed = owned.change_collection("x", "c", updated_at=2.5, changes=changes)
    assert changed == collection(name=name, description=description, updated_at=2.5)
    assert owned.collection("x", "c") == changed
    assert owned.collection("x", "other") == collection("other")


def test_files_of_a_collection_stay_when_it_goes(owned: OwnedStore) -> None:
    for id in ("c", "d"):
        owned.add_collection(collection(id))
    inside = [file(f"f{n}", created_at=float(n), collection_id="c") for n in range(3)]
    add_files(owned, *inside, file("alone"), file("d", collection_id="d"))
    assert list(owned.files("x", collection_id="c")) == inside[::-1]
    assert list(owned.files("x", collection_id="c", offset=1, limit=1)) == [inside[1]]
    assert list(owned.files("x", collection_id="c", ids=["f0", "alone"])) == [inside[0]]
    assert owned.count_files("x", collection_id="c") == (3, 9)
    for nothing in NO_IDS:
        assert list(owned.files("x", collection_id=nothing)) == []
        assert owned.count_files("x", collection_id=nothing) == (0, 0)
    assert list(owned.files("y", collection_id="c")) == []
    assert owned.count_files("y", collection_id="c") == (0, 0)
    owned.delete_collection("x", "c")
    with pytest.raises(UnknownOwnedError):
        owned.collection("x", "c")
    assert list(owned.files("x", collection_id="c")) == []
    assert owned.count_files("x") == (5, 15)
    assert {one.id: one.collection_id for one in owned.files("x")} == {
        **{one.id: None for one in inside},
        "alone": None,
        "d": "d",
    }


# sessions


@pytest.mark.parametrize(
    "added",
    [
        session(),
        session(query=ODD, questions=({"id": "q1", "question": ODD, "options": ["a", ODD]},)),
    ],
)
def test_a_session_is_returned_as_it_was_added(owned: OwnedStore, added: OwnedSession) -> None:
    owned.add_session(added)
    assert owned.session("x", "s") == added
    with pytest.raises(ValueError, match="exists"):
        owned.add_session(session(account="y"))
    for account, id in (("y", "s"), *(("x", id) for id in NO_IDS)):
        with pytest.raises(UnknownOwnedError):
            owned.session(account, id)


def test_a_session_is_removed_by_its_account_alone(owned: OwnedStore) -> None:
    owned.add_session(session())
    for account, id in (("y", "s"), *(("x", id) for id in NO_IDS)):
        owned.delete_session(account, id)
    assert owned.session("x", "s").id == "s"
    for _ in range(2):
        owned.delete_session("x", "s")
        with pytest.raises(UnknownOwnedError):
            owned.session("x", "s")


def test_old_sessions_are_removed(owned: OwnedStore) -> None:
    for n in range(6):
        owned.add_session(session(f"s{n}", created_at=float(n)))
    assert owned.prune_sessions(4.0, limit=3) == 3
    assert owned.prune_sessions(4.0) == 1
    assert owned.prune_sessions(4.0) == 0
    for n in range(4):
        with pytest.raises(UnknownOwnedError):
            owned.session("x", f"s{n}")
    assert owned.session("x", "s4").created_at == 4.0


# with the store


def test_what_is_owned_lies_where_the_jobs_do(database: Any, open_store: OpenStore) -> None:
    first, second = open_store(database), open_store(database)
    first.owned.add_file(file(), NO_LIMIT)
    assert second.owned.file("x", "f") == file()
    assert second.owned.delete_file("x", "f") == "key of f"
    assert list(first.owned.files("x")) == []
    first.close()
    for call in (lambda: first.owned.files("x"), lambda: first.owned.add_session(session())):
        with pytest.raises(StoreError, match="closed"):
            call()


def test_memory_forgets_it_with_the_jobs() -> None:
    store = MemoryStore()
    store.owned.add_file(file(), NO_LIMIT)
    store.owned.add_session(session())
    store.close()
    assert list(store.owned.files("x")) == []
    with pytest.raises(UnknownOwnedError):
        store.owned.session("x", "s")


# a commit whose answer is lost


def test_what_is_owned_is_written_once_though_its_commit_was_not_heard_of(
    losing: Any, open_store: OpenStore
) -> None:
    owned = open_store(losing).owned

    def lossy(call: Callable[[], Any]) -> Any:
        losing.losses = 1
        result = call()
        assert losing.losses == 0
        return result

    lossy(lambda: owned.add_collection(collection(), 1))
    lossy(lambda: owned.add_session(session()))
    one = FileQuota(files=1)
    assert lossy(lambda: owned.add_file(file(collection_id="c"), one)).key == "key of f"
    changes: Any = {"name": "m"}
    changed = lossy(lambda: owned.change_collection("x", "c", updated_at=2.0, changes=changes))
    assert changed == owned.collection("x", "c") == collection(name="m", updated_at=2.0)
    lossy(lambda: owned.delete_collection("x", "c"))
    assert owned.file("x", "f").collection_id is None
    assert lossy(lambda: owned.delete_file("x", "f")) == "key of f"
    assert owned.count_files("x") == (0, 0)
    assert owned.session("x", "s") == session()
    # of what was never there nothing else is said
    for call in (lambda: owned.delete_file("x", "f"), lambda: owned.delete_collection("x", "c")):
        with pytest.raises(UnknownOwnedError):
            lossy(call)


def test_jobs_count_once_though_their_commit_was_not_heard_of(
    losing: Any, open_store: OpenStore, new_job: NewJob
) -> None:
    store = open_store(losing)
    store.renew("me", 60)
    one = Quota(month="2025-11", jobs_in_progress=1)

    def lossy(call: Callable[[], Any]) -> Any:
        losing.losses = 1
        result = call()
        assert losing.losses == 0
        return result

    job = new_job(account="x", session_id="s", request=CompletionRequest(prompts=("p",)))
    lossy(lambda: store.create(job, quota=one))
    lossy(lambda: store.add_update("job", Update("u", "c"), 1.0))
    assert [update.update.id for update in store.updates("job")] == ["u"]
    store.claim("job", "me")
    moment = 1_764_547_199.0
    records = [Record(1, moment, LoopFinished(3)), Record(2, moment, Completed())]
    lossy(lambda: store.append("job", 1, records))
    assert store.standing("x", "2025-11") == Standing(jobs_in_progress=0, loops=3)


def test_a_file_that_was_refused_does_not_come_to_be(losing: Any, open_store: OpenStore) -> None:
    store = open_store(losing, retry_s=0)
    store.check()
    losing.losses = 1
    with pytest.raises(StoreError, match="closed the connection"):
        store.owned.add_file(file(), NO_LIMIT)
    store.check()
    assert list(store.owned.files("x")) == []
