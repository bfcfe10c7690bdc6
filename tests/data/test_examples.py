import torch

from covey import Examples
from covey.data.examples import Client, Preference

IMAGES = Examples(
    torch.tensor([0, 51, 255], dtype=torch.uint8).view(3, 1, 1, 1), torch.tensor([7, 8, 9])
)


def test_nothing_prints_data_or_a_clients_name():
    client = Client("ada", "h-0123", None, IMAGES, IMAGES, Preference(0.5, 0.6))
    assert repr(client) == "Client(h-0123)"
    assert repr(IMAGES) == "Examples((3, 1, 1, 1), torch.uint8)"
