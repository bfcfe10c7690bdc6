from .base import ClientSource, DataSet, DataSource
from .brought import ClientData, brought_population
from .conversion import TrainTest, clients_of, examples_of
from .examples import Client, Examples, Preference, to_floats
from .files import DataFile, Publication, check_data, data_folder
from .mixture import MixtureSpec, mixture_population
from .normalisation import normalised, normalised_population
from .npz import read_client, read_clients
from .organisations import read_organisations
from .partition import Partition
from .population import (
    Group,
    Population,
    absent_population,
    brought_order,
    build_population,
    population_of,
)
from .preferences import read_preferences, weight_from_threshold
from .request import PopulationRequest
from .shift import Shift, ShiftRange
from .source import Source
from .spec import GroupSpec, PopulationSpec

__all__ = [
    "Client",
    "ClientData",
    "ClientSource",
    "DataFile",
    "DataSet",
    "DataSource",
    "Examples",
    "Group",
    "GroupSpec",
    "MixtureSpec",
    "Partition",
    "Population",
    "PopulationRequest",
    "PopulationSpec",
    "Preference",
    "Publication",
    "Shift",
    "ShiftRange",
    "Source",
    "TrainTest",
    "absent_population",
    "brought_order",
    "brought_population",
    "build_population",
    "check_data",
    "clients_of",
    "data_folder",
    "examples_of",
    "mixture_population",
    "normalised",
    "normalised_population",
    "population_of",
    "read_client",
    "read_clients",
    "read_organisations",
    "read_preferences",
    "to_floats",
    "weight_from_threshold",
]
