"""What the API server refuses of an object that a person wrote, as a line of the file: without paths of its own API."""

import re
from typing import Final

from cli.words import given as say
from controller.insight.simulation.documents import Document
from controller.insight.simulation.problems import found_first
from kube.errors import ForbiddenError, InvalidError, KubeError

_DENIED: Final = re.compile(
    r"ValidatingAdmissionPolicy '(?P<policy>[^']*)'.* denied request: (?P<why>.*)"
    r"|denied the request: (?P<said>.*)"
    r"|policy '(?P<failing>[^']*)'.*?(?P<error>resulted in error: .*)"
)
"""Source: k8s.io/apiserver, pkg/admission/plugin/policy/validating/dispatcher.go and plugin/webhook/errors."""
_FAILED: Final = re.compile(r"expression '.*' (?P<error>resulted in error: .*)")
_INVALID: Final = re.compile(r'\S+ "[^"]*" is invalid: (?P<why>.*)')


def answer(failed: KubeError) -> str:
    """The server's sentence, without the call that it answers."""
    text = str(failed)
    return text.partition(f": {failed.status} ")[2] or text


def refused(document: Document, failed: KubeError) -> str:
    """The line of an object that the API server does not take as it is written; empty for any other failure, such as a
    right that its sender lacks.
    """
    reason = answer(failed)
    if isinstance(failed, ForbiddenError | InvalidError) and (denied := _DENIED.search(reason)):
        broken = _FAILED.search(denied["why"] or "")
        if broken or denied["failing"]:
            policy = denied["policy"] or denied["failing"]
            reason = say.policy_fails(policy, broken["error"] if broken else denied["error"])
        else:
            reason = denied["why"] or denied["said"]
    elif isinstance(failed, InvalidError):
        invalid = _INVALID.fullmatch(reason)
        reason = invalid["why"] if invalid else reason
    else:
        return ""
    return found_first(str(document.error(f"{document.subject}{reason}")))
