from .auditing import audit_model
from .loading import named_function, named_model
from .page import rows
from .result import Control, ModelAudit

__all__ = [
    "Control",
    "ModelAudit",
    "audit_model",
    "named_function",
    "named_model",
    "rows",
]
