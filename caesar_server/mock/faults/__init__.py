"""What goes wrong on purpose: which faults there are, and what they make of an answer."""

from caesar_server.mock.faults.acts import Act, End, Happen, Pause, Reset, Write
from caesar_server.mock.faults.bodies import body_acts, sent_length
from caesar_server.mock.faults.checking import FaultError, check_fault, fault_problems
from caesar_server.mock.faults.headers import (
    FAULT_HEADER,
    HEADERS,
    STRICT_HEADER,
    header_faults,
    header_strict,
)
from caesar_server.mock.faults.kinds import KINDS, Kind
from caesar_server.mock.faults.stages import StreamFaults

__all__ = [
    "FAULT_HEADER",
    "HEADERS",
    "KINDS",
    "STRICT_HEADER",
    "Act",
    "End",
    "FaultError",
    "Happen",
    "Kind",
    "Pause",
    "Reset",
    "StreamFaults",
    "Write",
    "body_acts",
    "check_fault",
    "fault_problems",
    "header_faults",
    "header_strict",
    "sent_length",
]
