"""Fashion-MNIST: clothes in the format of MNIST."""

from types import MappingProxyType
from typing import ClassVar

from covey.data.files import Publication
from covey.data.sets.mnist import Mnist

__all__ = ["FashionMnist"]


class FashionMnist(Mnist):
    """60,000 training and 10,000 test images of ten kinds of clothes."""

    publication: ClassVar[Publication] = Publication(
        source="fashion-mnist",
        folder="fashion-mnist",
        files=MappingProxyType(
            {
                "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
                "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
                "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
            }
        ),
        url="https://github.com/zalandoresearch/fashion-mnist/tree/master/data/fashion",
    )
