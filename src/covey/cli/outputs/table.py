"""The type of each output, by command, and of each file."""

from collections.abc import Mapping
from typing import Any

from covey.cli.outputs import audits, files, guarantees, leaving, machine, runs
from covey.cli.outputs import requests as cases
from covey.cli.outputs import run as one_run
from covey.requests import Plan
from covey.unlearning.proof import Proof

__all__ = ["FAILURE", "FILES", "OUTPUTS"]

FAILURE = machine.Failed
"""What every command prints that could not answer."""

OUTPUTS: Mapping[str, Any] = {
    "run": one_run.RunConcluded,
    "resume": one_run.RunConcluded,
    "sweep": runs.Swept,
    "report": runs.ReportWritten,
    "export": runs.Exported,
    "doctor": runs.Doctored,
    "runs list": runs.RunsListed,
    "runs show": runs.RunTold,
    "runs prune": runs.Pruned,
    "join": runs.Changed,
    "update": runs.Changed,
    "audit": audits.RunAudited,
    "audit --model": audits.ModelAudited,
    "audit --game": audits.GamePlayed,
    "audit --epsilon": audits.EpsilonTested,
    "records": audits.RecordsTold,
    "guarantee --noise": guarantees.GuaranteeOfPaper | guarantees.GuaranteeOfNoise,
    "guarantee --deniability": guarantees.Deniability,
    "explain": leaving.Explanation,
    "forget": leaving.Forgotten | leaving.Queued,
    "forget --plan": leaving.ForgetPlans,
    "forget --again": leaving.Unacknowledged,
    "forget --received": leaving.Unacknowledged,
    "requests add": cases.CaseTold,
    "requests list": cases.CasesTold,
    "requests due": cases.CasesTold,
    "requests show": cases.CaseTold,
    "requests plan": Plan,
    "requests answer": cases.OutcomesTold,
    "requests extend": cases.CaseTold,
    "requests item": cases.CaseTold,
    "requests sign": cases.CaseTold,
    "requests letters": cases.LettersWritten,
    "requests templates": cases.TemplatesWritten,
    "requests close": cases.CaseTold,
    "verify": runs.Checked,
    "dossier": runs.DossierWritten,
    "head": runs.HeadSigned,
    "witness": runs.HeadWitnessed,
    "keys": runs.KeysListed,
    "data": machine.DataFiles,
    "config check": machine.ConfigChecked,
    "config init": machine.ConfigTemplate,
    "config schema --out": machine.Written,
    "deploy init": machine.FederationWritten,
    "deploy check": machine.FederationChecked,
    "deploy status": machine.FederationStatus,
    "serve": machine.Served,
}
"""By command, with the option that asks for it where a command has several answers.

`config schema` without `--out` prints the schema of the settings itself.
"""

FILES: Mapping[str, Any] = {
    "audit/audit.json": audits.AuditFile,
    "audit.json of a model": audits.ModelAuditFile,
    "proofs/REQUEST.json": Proof,
    "receipts/REQUEST.json": files.ReceiptDocument,
    "dossier.json": files.DossierDocument,
    "head.json": files.HeadUpdateFile,
    "Run.summary": one_run.RunSummary,
}
"""By file: those that a run's folder, an audit, a dossier or a witness is given."""
