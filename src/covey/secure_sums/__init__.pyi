from .client import ClientRound
from .disclosure import movable, smallest_part
from .identities import Ed25519Identities, Identities, Unsigned
from .neighbours import Neighbourhood, neighbourhood
from .results import Refusal, SecureSum
from .server import ServerRound
from .terms import Reason, RefusedError, RoundGivenUpError, Terms
from .together import secure_sum

__all__ = [
    "ClientRound",
    "Ed25519Identities",
    "Identities",
    "Neighbourhood",
    "Reason",
    "Refusal",
    "RefusedError",
    "RoundGivenUpError",
    "SecureSum",
    "ServerRound",
    "Terms",
    "Unsigned",
    "movable",
    "neighbourhood",
    "secure_sum",
    "smallest_part",
]
