"""The private parts of Flower that covey touches, in one place (flwr 1.41)."""

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp
from flwr.supercore.task_identity import TaskIdentity

__all__ = ["SUPERLINK", "outside_a_run", "reply_from"]

SUPERLINK = 1
"""The node id of a SuperLink."""

FAILED = 2
"""The code of an error inside a client app."""


def outside_a_run() -> None:
    """Let messages be made where no SuperLink has given this process a task."""
    TaskIdentity.run_id = 1
    TaskIdentity.node_id = SUPERLINK
    TaskIdentity.task_id = 1


def reply_from(app: ClientApp, message: Message, context: Context) -> Message:
    """Return a client app's answer, or the error that a SuperNode would send for it."""
    try:
        return app(message, context)
    except Exception as error:
        return Message(Error(FAILED, type(error).__name__), reply_to=message)
