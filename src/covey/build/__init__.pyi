from .aggregators import (
    aggregator_of,
    anonymity_of,
    noise_on_clients,
    server_step_of,
)
from .algorithms import (
    Components,
    ReplayOptions,
    clients_of,
    compose,
    depends_on_population,
    has_independent_clusters,
    red_team,
)
from .client_backend import ClientBackend, ClientReports, DataProfile
from .client_runtime import ClientRuntime, ClusterChoice
from .populations import data_hash
from .run import BuiltRun, ClientSecrets, Overrides, build_run, client_runtime_of

__all__ = [
    "BuiltRun",
    "ClientBackend",
    "ClientReports",
    "ClientRuntime",
    "ClientSecrets",
    "ClusterChoice",
    "Components",
    "DataProfile",
    "Overrides",
    "ReplayOptions",
    "aggregator_of",
    "anonymity_of",
    "build_run",
    "client_runtime_of",
    "clients_of",
    "compose",
    "data_hash",
    "depends_on_population",
    "has_independent_clusters",
    "noise_on_clients",
    "red_team",
    "server_step_of",
]
