"""A poll waits until the job that it asks for stands still: so it sees the same each time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from caesar_server.blueprints.mock.seams import held_of
from caesar_server.mock import native
from caesar_server.mock.course import Course, settle
from caesar_server.mock.scope import Scope
from caesar_server.mock.scopes import Scopes
from caesar_server.store.base import Store, UnknownJobError
from caesar_server.web.incoming import incoming

#: Real seconds that a poll waits at most, for a reply function that does not come to an end, say.
PATIENCE_S = 10.0
#: The backend that has courses; whatever else answers goes its own ways.
_BACKEND = "mock"


def settling(scopes: Scopes, store: Store) -> Callable[[str], None]:
    """Return what a view calls with a job's id before it reads the job for the current request.

    It returns once the job has ended, or waits: for the scope's clock, for polls that its reply
    wants to see, or for room.  A poll is counted here, and a stream says that nobody need poll.
    """

    def settled(job_id: str) -> None:
        course, held = scopes.courses.find(job_id), held_of(incoming().environ)
        if course is None or held is None or held.scope is not course.scope:
            return
        if held.call.method == "GET" and native.is_poll(held.call.path, job_id):
            course.poll()
        elif held.call.stream:
            course.release()
            return  # it shows everything from the beginning, whenever it begins
        settle(course, partial(_stands, course, job_id, store), PATIENCE_S)

    return settled


def settle_all(scopes: Scopes, scope: Scope, store: Store) -> None:
    """Return once that is so for all jobs of a scope, none of which is polled by that."""
    for job_id, course in scopes.courses.of(scope).items():
        if not course.stored:
            settle(course, partial(_stands, course, job_id, store), PATIENCE_S)


def _stands(course: Course, job_id: str, store: Store) -> bool:
    # before the job: what stands now was stored before, or is not yet
    stands_at, begun = course.stands_at, course.begun
    try:
        job = store.job(job_id)
    except UnknownJobError:
        return True
    if job.finished_at is not None or job.backend != _BACKEND:
        course.stored = True
        return True
    if not begun:
        return job.owner is None  # there is no room for it
    return stands_at is not None and job.last_seq >= stands_at
