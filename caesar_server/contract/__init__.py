"""The public contract between the server and its backend plugins.

A backend turns a :mod:`request <caesar_server.contract.request>` into an iterator of
:mod:`events <caesar_server.contract.events>`; everything else the server shows is derived from that
iterator.  A plugin imports from this package and from nothing else of the server.
"""

from caesar_server.contract.backend import (
    CONTRACT_VERSION,
    Backend,
    Capabilities,
    Health,
    Model,
)
from caesar_server.contract.context import Clock, Context, Update
from caesar_server.contract.errors import (
    BackendError,
    BackendTimeoutError,
    BackendUnavailableError,
    BadUpstreamError,
    Cancelled,
    ErrorInfo,
    InvalidRequestError,
    RateLimitedError,
    RequestRejectedError,
)
from caesar_server.contract.events import (
    ChoiceFinished,
    Completed,
    ContentDelta,
    Event,
    Failed,
    LogprobToken,
    LoopFinished,
    ProgressNoted,
    RequestLogged,
    ResultFound,
    SourceStored,
    Started,
    StatusChanged,
    TopLogprob,
    UsageCounted,
)
from caesar_server.contract.generation import choice_events, split_words
from caesar_server.contract.options import OptionsError, OptionsReader, option
from caesar_server.contract.request import (
    BrainstormRequest,
    ChatRequest,
    CompletionRequest,
    FollowUpRequest,
    Message,
    Part,
    Request,
    ResearchParameters,
    ResearchRequest,
    Sampling,
    Source,
)
from caesar_server.contract.text import IncrementalUtf8, StopHoldback, WholeCharacters, count_words

__all__ = [
    "CONTRACT_VERSION",
    "Backend",
    "BackendError",
    "BackendTimeoutError",
    "BackendUnavailableError",
    "BadUpstreamError",
    "BrainstormRequest",
    "Cancelled",
    "Capabilities",
    "ChatRequest",
    "ChoiceFinished",
    "Clock",
    "Completed",
    "CompletionRequest",
    "ContentDelta",
    "Context",
    "ErrorInfo",
    "Event",
    "Failed",
    "FollowUpRequest",
    "Health",
    "IncrementalUtf8",
    "InvalidRequestError",
    "LogprobToken",
    "LoopFinished",
    "Message",
    "Model",
    "OptionsError",
    "OptionsReader",
    "Part",
    "ProgressNoted",
    "RateLimitedError",
    "Request",
    "RequestLogged",
    "RequestRejectedError",
    "ResearchParameters",
    "ResearchRequest",
    "ResultFound",
    "Sampling",
    "Source",
    "SourceStored",
    "Started",
    "StatusChanged",
    "StopHoldback",
    "TopLogprob",
    "Update",
    "UsageCounted",
    "WholeCharacters",
    "choice_events",
    "count_words",
    "option",
    "split_words",
]
