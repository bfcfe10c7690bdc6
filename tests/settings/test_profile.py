"""What a server learns of its clients' data is enough to build their model."""

from pathlib import Path

import pytest
import torch

from covey.data.source import DataProfile
from covey.runtime.folder import FederationMetadata, RunFolder


@pytest.mark.parametrize(
    ("images", "whole", "dtype"),
    [(True, False, torch.uint8), (False, False, torch.float32), (False, True, torch.int64)],
)
def test_no_examples_are_of_the_clients_kind_also_when_read_again(
    images: bool,  # noqa: FBT001
    whole: bool,  # noqa: FBT001
    dtype: torch.dtype,
    tmp_path: Path,
):
    roster = FederationMetadata("r", DataProfile((5,), images, 2, whole), "")
    roster.write(RunFolder(tmp_path))
    read = FederationMetadata.of(RunFolder(tmp_path))
    assert read is not None
    assert read.profile is not None
    assert read.profile.empty_examples().inputs.dtype == dtype
