from .conversion import TrainTest, clients_of, examples_of
from .examples import Client, Examples, Preference, to_floats
from .files import DataFile, check_data, data_folder
from .mixture import MixtureSpec, mixture_population
from .npz import read_client, read_clients
from .population import (
    Group,
    Population,
    absent_population,
    build_population,
    population_of,
)
from .preferences import read_preferences, weight_from_threshold
from .shifts import Shift
from .sources import SOURCES, Source, read_source
from .spec import GroupSpec, PopulationSpec

__all__ = [
    "SOURCES",
    "Client",
    "DataFile",
    "Examples",
    "Group",
    "GroupSpec",
    "MixtureSpec",
    "Population",
    "PopulationSpec",
    "Preference",
    "Shift",
    "Source",
    "TrainTest",
    "absent_population",
    "build_population",
    "check_data",
    "clients_of",
    "data_folder",
    "examples_of",
    "mixture_population",
    "population_of",
    "read_client",
    "read_clients",
    "read_preferences",
    "read_source",
    "to_floats",
    "weight_from_threshold",
]
