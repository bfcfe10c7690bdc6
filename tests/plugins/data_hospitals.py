"""A data source of a user's own: hospitals in two regions, whose patients differ."""

from typing import ClassVar

import numpy as np
from pydantic import Field

import covey

MEASUREMENTS = 6


class Hospitals(covey.ClientSource):
    """Patients with measurements x and a diagnosis sign(<x, w_region>), as 0 or 1.

    The regions are known, and the server has patients of its own.
    """

    has_groups: ClassVar[bool] = True
    has_pool: ClassVar[bool] = True

    hospitals: int = Field(default=8, gt=1)
    patients: int = Field(default=30, gt=0)
    agreement: float = Field(default=0.0, ge=-1, le=1)

    def clients(self, request: covey.PopulationRequest) -> covey.ClientData:
        streams = request.streams
        north, other = streams.at("weights").generator().normal(size=(2, MEASUREMENTS))
        weights = {
            "north": north,
            "south": self.agreement * north + (1 - abs(self.agreement)) * other,
        }
        groups = {f"hospital-{i:02}": ("north", "south")[i % 2] for i in range(self.hospitals)}

        def drawn(region: str, count: int, *names: str) -> tuple[np.ndarray, np.ndarray]:
            x = streams.at(*names).generator().normal(size=(count, MEASUREMENTS))
            return x.astype(np.float32), (x @ weights[region] > 0).astype(np.int64)

        return covey.ClientData(
            clients={name: drawn(region, self.patients, name) for name, region in groups.items()},
            groups=groups,
            test={weight: drawn(weight, 200, "test", weight) for weight in weights},
            non_members={weight: drawn(weight, 200, "others", weight) for weight in weights},
            pool=drawn("north", 300, "pool"),
        )
