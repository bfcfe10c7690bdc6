"""Who has to trust whom for what, with these settings: what no setting enforces."""

from collections.abc import Iterator
from dataclasses import dataclass

from covey.base.names import Unit
from covey.settings.aggregation import noise_on_clients, summed_up
from covey.settings.load import Config

SERVER = "the server"
OFTEN = (
    "; how often it asks, a node's rounds bound, with `repeats` in its node.toml, and what that "
    "costs, its epsilon_limit"
)
CHOICES = (
    "; and not to ask for choices among models of its own: each is an exact answer about a "
    "client's records, some seventy give its number of records of each class, and a node makes "
    "as many as its rounds need (privacy.selection_noise hides them)"
)
BARE = {"counts": "counts of losses", "updates": "updates", "sums": "sums over records"}


@dataclass(frozen=True, slots=True)
class Trust:
    """One has to trust another for this; `for_what` may say that it is nothing, and why."""

    truster: str
    whom: str
    for_what: str


def trust(config: Config) -> Iterator[Trust]:
    """Yield what is left to trust: in the server, in other clients, in who has the models.

    Noise that follows from a seed hides nothing from who has the settings: it counts as none.
    """
    plan, method, secret = config.privacy_plan, config.method, config.secrets.source == "os"
    own, noisy = plan.clients_add_noise and secret, noise_on_clients(config) and secret
    hidden = plan.choice_noise > 0 and secret
    choices = CHOICES if method.offers_choices and not hidden else ""
    names = {of: BARE[of] for of in sorted(summed_up(config))}
    sent, counts = " and ".join(names.values()), names.pop("counts", "")
    if plan.masks:
        yield Trust("a client", SERVER, _under_masks(config, plan.unit if own else None))
        clients = "that fewer than a fifth of them, and than min_cohort - 1, help the server"
        if own:
            clients = (
                f"that at most {plan.masks.colluders} of the {plan.min_cohort} clients that a sum "
                f"is over at least give the server the noise that they added"
            )
        yield Trust("a client", "other clients", clients)
    elif own:
        bare = f"; its {counts} are bare" if counts else ""
        yield Trust(
            "a client",
            SERVER,
            f"nothing: its updates leave it under its own noise{bare}{OFTEN}{choices}",
        )
    else:
        noise = "to add the noise, and " if noisy else ""
        trusted = f"{noise}to forget its {sent}, each of which it sees{choices}"
        yield Trust("a client", SERVER, trusted)
    held = "not to attack them: what they reveal of members is measured, and not bounded"
    if secret and (plan.step_noise or (plan.noise and plan.sums_gradients)):
        held = "nothing about a single record, beyond the epsilon of the run"
    elif noisy:
        held = "nothing, beyond the epsilon of the run"
    elif method.traits.subtracts:
        held = "not to attack them: a ridge head gives its members away"
    yield Trust("a client", "who has the models", held)
    lies = "that most of them do not lie: single updates that stand out move little"
    if plan.masks or not config.aggregation.sees_updates:
        lies = "not to lie: a few can turn a mean, or a sum, round"
    yield Trust(SERVER, "clients", lies)


def _under_masks(config: Config, hidden: Unit | None) -> str:
    """Return what a server that sees sums alone has to be trusted for.

    `hidden` is what hides in them, in noise of the clients' own.
    """
    of = summed_up(config)
    if hidden:
        what = "" if hidden == "client" else " about a single record"
        return f"nothing{what}: it sees sums alone, each under noise of the clients' own{OFTEN}"
    few = " and ".join(BARE[kind] for kind in sorted(of - {"sums"}))
    sums = "nothing for sums over records: a node opens them over one cohort alone"
    if not few:
        return sums
    keeps = (
        f"to keep to the protocol for {few}: who asks again without one client, about a model "
        f"that differs a little, has that client's own (privacy.noise_model = 'distributed' "
        f"hides it from such a server, too)"
    )
    return f"{sums}; {keeps}" if "sums" in of else keeps
