"""What reached the mock and what became of it: kept, searched, waited for, exported."""

from caesar_server.mock.journal.book import Limits, Totals
from caesar_server.mock.journal.entry import Ended, Entry, FaultNote, Frame
from caesar_server.mock.journal.filters import EVERYTHING, EntryFilter
from caesar_server.mock.journal.journal import Journal, NotReachedError
from caesar_server.mock.journal.recording import Recording

__all__ = [
    "EVERYTHING",
    "Ended",
    "Entry",
    "EntryFilter",
    "FaultNote",
    "Frame",
    "Journal",
    "Limits",
    "NotReachedError",
    "Recording",
    "Totals",
]
