"""An audit of a table's classifier that is no torch module: a random forest of scikit-learn."""

import sys

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from torch import Tensor

import covey


class Forest:
    """What covey needs of any model: a row of class scores per input."""

    def __init__(self, examples: covey.Examples, seed: int) -> None:
        self.forest = RandomForestClassifier(100, random_state=seed)
        self.forest.fit(examples.inputs.numpy(), examples.labels.numpy())

    def __call__(self, inputs: Tensor) -> Tensor:
        return torch.from_numpy(self.forest.predict_proba(inputs.numpy()))


def main(out: str) -> None:
    columns, labels = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    sides = [(columns[half].astype(np.float32), labels[half]) for half in np.split(order[:568], 2)]
    radius = np.concatenate([side[0][:, 0] for side in sides])

    inputs, classes = (torch.from_numpy(side) for side in sides[0])
    model = Forest(covey.Examples(inputs, classes), seed=0)
    audit = covey.audit_model(
        model,
        *sides,
        references=Forest,
        groups=np.where(radius > np.median(radius), "large cells", "small cells").tolist(),
    )
    print(audit.verdict)
    kind, name, accuracy = audit.worst or ("group", "none", None)
    print(f"found most of: {kind} {name}, balanced accuracy {accuracy}")
    print(f"page: {audit.write_html(f'{out}/audit.html')}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/audit-table")
