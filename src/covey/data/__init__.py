"""Data sets, how groups of clients differ, and the populations made of them."""

from covey.data.conversion import TrainTest, clients_of, examples_of
from covey.data.examples import Client, Examples, Preference, to_floats
from covey.data.files import DataFile, check_data, data_folder
from covey.data.mixture import MixtureSpec, mixture_population
from covey.data.npz import read_client, read_clients
from covey.data.population import (
    Group,
    Population,
    absent_population,
    build_population,
    population_of,
)
from covey.data.preferences import read_preferences, weight_from_threshold
from covey.data.shifts import Shift
from covey.data.sources import SOURCES, Source, read_source
from covey.data.spec import GroupSpec, PopulationSpec

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
