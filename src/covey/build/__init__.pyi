from .aggregators import (
    aggregator_of,
    anonymity_of,
    noise_on_clients,
    server_step_of,
    sum_noise_of,
    sums_of,
)
from .algorithms import (
    ReplayOptions,
    clients_of,
    compose,
    depends_on_population,
    has_independent_clusters,
)
from .attested import attested_organisations
from .client_backend import ClientBackend, ClientReports, DataProfile, KnowsKeys
from .client_runtime import ClientRuntime, ClusterChoice
from .data_hashes import data_hash
from .newcomers import brought_client
from .parts import Components
from .risk import red_team_of
from .run import BuiltRun, ClientSecrets, Overrides, build_run, client_runtime_of
from .settled import algorithm_of, masks_told, summed_up

__all__ = [
    "BuiltRun",
    "ClientBackend",
    "ClientReports",
    "ClientRuntime",
    "ClientSecrets",
    "ClusterChoice",
    "Components",
    "DataProfile",
    "KnowsKeys",
    "Overrides",
    "ReplayOptions",
    "aggregator_of",
    "algorithm_of",
    "anonymity_of",
    "attested_organisations",
    "brought_client",
    "build_run",
    "client_runtime_of",
    "clients_of",
    "compose",
    "data_hash",
    "depends_on_population",
    "has_independent_clusters",
    "masks_told",
    "noise_on_clients",
    "red_team_of",
    "server_step_of",
    "sum_noise_of",
    "summed_up",
    "sums_of",
]
