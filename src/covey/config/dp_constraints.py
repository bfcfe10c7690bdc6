"""What must hold between values for a run to be as private as they ask."""

from collections.abc import Iterator

from covey.components.foreign import foreign_options
from covey.config.plain_claims import solves
from covey.config.sections import MergeConfig, PrivacyConfig, Sections

__all__ = ["privacy_problems"]


def privacy_problems(config: Sections) -> Iterator[str]:
    """Yield why these settings cannot be private as they ask."""
    yield from _hiding_problems(config.merge)
    yield from _client_problems(config)
    yield from _stopping_problems(config)
    if solves(config):
        yield from _sums_problems(config.privacy)
    if config.privacy.record_noise > 0 and config.privacy.record_clip == 0:
        yield (
            "privacy.record_noise hides an example only if its gradient is clipped, "
            "found privacy.record_clip = 0. Set it, for example to 1.0."
        )


def _stopping_problems(config: Sections) -> Iterator[str]:
    """Yield why a run may not end where its models say, as its noise is accounted for."""
    privacy, merge = config.privacy, config.merge
    noise = privacy.client_noise or privacy.record_noise or privacy.selection_noise
    if config.stopping.figure != "none" and (
        noise or merge.epsilon or merge.noise == "sound"
    ):
        yield (
            f"stopping.figure = {config.stopping.figure!r} lets the models decide how many "
            f"rounds are played, and a guarantee counts the rounds that were settled "
            f"beforehand. Remove it, or the noise."
        )


def _sums_problems(privacy: PrivacyConfig) -> Iterator[str]:
    """Yield why sums that heads are solved from are not hidden as they are asked to be."""
    if privacy.client_noise > 0 and privacy.record_clip > 0:
        yield (
            f"Noise is on sums, for clients, or on heads, for records, found "
            f"privacy.client_noise = {privacy.client_noise} and privacy.record_clip = "
            f"{privacy.record_clip}. Noise that hides a client hides each of its records, "
            f"too: remove privacy.record_clip and privacy.record_noise."
        )
    elif privacy.record_clip > 0 and privacy.record_noise == 0:
        yield (
            "privacy.record_clip bounds what noise on heads hides, found "
            "privacy.record_noise = 0. Set the noise, or remove the clip."
        )


def _hiding_problems(merge: MergeConfig) -> Iterator[str]:
    """Yield why an aggregation keeps no promise that its options make.

    One that has these options checks them by itself; another one must not pass over them.
    """
    reasons = {each.key: each.reason for each in foreign_options(merge)}
    if why := reasons.get("merge.noise"):
        promises = (
            ("noise", merge.noise, "sound"),
            ("epsilon", merge.epsilon > 0, True),
        )
        for key, found, promise in promises:
            if found == promise:
                value = getattr(merge, key)
                yield (
                    f"merge.{key} = {value!r} promises differential privacy that nobody "
                    f"keeps: {why}. Remove it, or change merge.name."
                )
        if merge.min_organisations > 1:
            yield (
                f"merge.min_organisations = {merge.min_organisations} promises sets of "
                f"members of different organisations that nobody forms: {why}. Remove it, "
                f"or change merge.name."
            )
        if merge.deniability_threshold > merge.min_anonymity:
            yield (
                f"merge.deniability_threshold (x) is how many of an anonymity set's at "
                f"least merge.min_anonymity (k) members must stay, so at most k = "
                f"{merge.min_anonymity}, found x = {merge.deniability_threshold}. Lower "
                f"x or raise k."
            )


def _client_problems(config: Sections) -> Iterator[str]:
    """Yield why the sums of clients' updates are not differentially private."""
    privacy, merge = config.privacy, config.merge
    if privacy.client_noise == 0:
        if privacy.client_clip:
            yield (
                "privacy.client_clip is for updates that privacy.client_noise hides, found "
                "client_noise = 0. Set the noise, or remove client_clip."
            )
        return
    if merge.noise != "none":
        yield (
            f"privacy.client_noise needs merge.noise = 'none', as that one is for "
            f"anonymity sets; found {merge.noise!r}. Set merge.noise = 'none', or remove "
            f"the noise."
        )
    if privacy.client_clip == 0:
        yield (
            "privacy.client_noise is in units of privacy.client_clip, the largest norm of "
            "an update, found client_clip = 0. Set it, for example to 1."
        )
