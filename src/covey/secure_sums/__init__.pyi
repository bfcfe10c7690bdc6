from .client import ClientRound
from .disclosure import movable, overlapping
from .identities import Ed25519Identities, Identities, Unsigned
from .messages import Keys
from .neighbours import Neighbourhood, neighbourhood
from .results import Refusal, SecureSum
from .server import ServerRound
from .terms import SESSION_BYTES, Reason, RefusedError, RoundGivenUpError, Step, Terms
from .together import secure_sum

__all__ = [
    "SESSION_BYTES",
    "ClientRound",
    "Ed25519Identities",
    "Identities",
    "Keys",
    "Neighbourhood",
    "Reason",
    "Refusal",
    "RefusedError",
    "RoundGivenUpError",
    "SecureSum",
    "ServerRound",
    "Step",
    "Terms",
    "Unsigned",
    "movable",
    "neighbourhood",
    "overlapping",
    "secure_sum",
]
