"""What a run's models are made of, as CycloneDX: models, data, and software."""

import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution, version
from typing import Any

from packaging.requirements import Requirement

from covey.errors import ConfigError

__all__ = ["bill_of_materials"]

MISSING = (
    "A dossier has a bill of materials in the form of CycloneDX, written by "
    "cyclonedx-python-lib, and that is not installed. Install it: "
    'pip install "covey[dossier]"'
)


def bill_of_materials(name: str, facts: Mapping[str, Any]) -> bytes:
    """Return a machine learning bill of materials: CycloneDX 1.6, as JSON.

    Args:
        name: of the run.
        facts: as `dossier_facts` returns them.

    Raises:
        ConfigError: the library that writes it is not installed.
    """
    try:
        # its decorated classes have no types that a checker understands
        base: Any = import_module("cyclonedx.model")
        parts: Any = import_module("cyclonedx.model.component")
        whole_bom: Any = import_module("cyclonedx.model.bom")
        output: Any = import_module("cyclonedx.output")
        schema: Any = import_module("cyclonedx.schema")
    except ImportError as error:
        raise ConfigError(MISSING) from error
    kinds = parts.ComponentType

    def sha256(digest: str | None) -> list[Any]:
        return (
            [base.HashType(alg=base.HashAlgorithm.SHA_256, content=digest)]
            if digest
            else []
        )

    def properties(told: Mapping[str, object]) -> list[Any]:
        return [
            base.Property(name=f"covey:{key}", value=_text(value))
            for key, value in told.items()
        ]

    run = facts["run"]
    whole = parts.Component(
        type=kinds.MACHINE_LEARNING_MODEL,
        name=name,
        bom_ref="run",
        hashes=sha256(run["model_hash"]),
        properties=properties({"guarantees": facts["guarantees"], **run}),
    )
    models = [
        parts.Component(
            type=kinds.MACHINE_LEARNING_MODEL,
            name=f"{name}: model {each['cluster']}",
            bom_ref=f"model-{each['cluster']}",
            properties=properties(each),
        )
        for each in facts["models"]
    ]
    data = parts.Component(
        type=kinds.DATA,
        name="examples of the clients",
        bom_ref="data",
        hashes=sha256(run["data_hash"]),
        properties=properties({"clients": run["clients"]}),
    )
    software = [
        parts.Component(
            type=kinds.LIBRARY,
            name=each,
            version=found,
            bom_ref=f"software-{each}",
        )
        for each, found in _software()
    ]
    bom = whole_bom.Bom(components=[*models, data, *software])
    bom.metadata.component = whole
    bom.register_dependency(whole, models)
    for each in models:
        bom.register_dependency(each, [data, *software])
    return (
        output.make_outputter(bom, schema.OutputFormat.JSON, schema.SchemaVersion.V1_6)
        .output_as_string(indent=1)
        .encode()
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _software() -> Iterator[tuple[str, str]]:
    """Yield covey and what a plain install of it needs, each in its installed version."""
    yield "covey", version("covey")
    for line in sorted(distribution("covey").requires or ()):
        wanted = Requirement(line)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            yield wanted.name, version(wanted.name)
        except PackageNotFoundError:
            continue
