from .client_card import client_page, clients_page, handle_of
from .compared import compared_page, list_page
from .documents import audit_page, audit_picture, proof_page, proofs_page
from .one_run import run_page, state_of
from .request_register import request_page, requests_page

__all__ = [
    "audit_page",
    "audit_picture",
    "client_page",
    "clients_page",
    "compared_page",
    "handle_of",
    "list_page",
    "proof_page",
    "proofs_page",
    "request_page",
    "requests_page",
    "run_page",
    "state_of",
]
