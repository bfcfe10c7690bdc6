"""A small recurrent model in plain torch, which every simulator can read."""

from torch import Tensor, nn

TOKENS, LENGTH = 80, 20


class Recurrent(nn.Module):
    """An LSTM over tokens, and a linear layer on its last state."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, 8)
        self.lstm = nn.LSTM(8, 64, batch_first=True)
        self.head = nn.Linear(64, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits of sequences of tokens."""
        states, _ = self.lstm(self.embedding(inputs))
        return self.head(states[:, -1])
