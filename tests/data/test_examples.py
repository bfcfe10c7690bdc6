import torch

from covey import Examples
from covey.data.examples import Client, Preference, to_floats

IMAGES = Examples(
    torch.tensor([0, 51, 255], dtype=torch.uint8).view(3, 1, 1, 1), torch.tensor([7, 8, 9])
)


def test_taking_keeps_inputs_and_labels_together_in_the_order_asked_for():
    taken = IMAGES.take(torch.tensor([2, 0]))
    assert taken.inputs.flatten().tolist() == [255, 0]
    assert taken.labels.tolist() == [9, 7]
    assert IMAGES.first(2).labels.tolist() == [7, 8]
    assert len(IMAGES) == 3


def test_images_are_scaled_to_one_and_features_stay_as_they_are():
    assert torch.equal(to_floats(IMAGES.inputs).flatten(), torch.tensor([0, 0.2, 1]))
    features = torch.tensor([[-3.0, 300.0]])
    assert torch.equal(to_floats(features), features)


def test_nothing_prints_data_or_a_clients_name():
    client = Client("ada", "h-0123", None, IMAGES, IMAGES, Preference(0.5, 0.6))
    assert repr(client) == "Client(h-0123)"
    assert repr(IMAGES) == "Examples((3, 1, 1, 1), torch.uint8)"
