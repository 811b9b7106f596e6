"""An API server with our policies, asked what Kueue's webhook cases ask: by dry run, on one connection."""

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from controller.cluster.webhooks.jobs import SuspendPaths
from controller.jobs.framework import names
from controller.jobs.framework.podview import ADMISSION_GATE, ROLE_HASH
from controller.jobs.framework.raw import Json, labels
from hack.cluster import waiting
from tests.conformance.kueuejobs import suites
from tests.conformance.kueuejobs.runners_podsets import filled
from tests.conformance.replay import Difference, first_difference
from tests.support.e2e import kindcrds, webhookcases
from tests.support.e2e.charttext import NAMESPACE, rendered
from tests.support.e2e.kubernetes import POLICIES, SUSPEND_BY
from tests.support.e2e.podlab import WEBHOOK
from tests.support.e2e.queueapi import GROUP, Api, Verdict
from tests.support.e2e.webhookcases import PLAIN, WITH_DEFAULT, Asked, cases, difference, managed_by, path
from tests.support.e2e.webhooklab import Webhook
from tests.support.e2e.webhookreasons import BY_KIND, Setting, reason, sentences, setting

_STRICT: Final = "?fieldValidation=Strict"
_DRY: Final = f"{_STRICT}&dryRun=All"


_STAMPED: Final = ("kueue.x-k8s.io/pod-suspending-parent", ADMISSION_GATE, "'suspend': True")
"""What the API server writes into an object of a queue, one of these into each kind's."""
TEMPLATES: Final = (
    f"job-suspend-{SUSPEND_BY}",
    "job-policy",
    "job-rules-policy",
    *(("job-defaults-policy",) if POLICIES else ()),
    "job-version-policy",
    f"pod-gate-{SUSPEND_BY}",
    "pod-policy",
    f"serving-{SUSPEND_BY}",
    "serving-minimum-policy",
    "queue-policy-workloads",
)
"""Where webhooks stand in for policies, that for jobs writes their defaults too."""
EFFECTIVE_S: Final = 30
QUIET: Final = "--controllers=*,-job-controller,-deployment-controller,-replicaset-controller,-statefulset-controller"
"""Of the controller manager: what a case says of a status stands."""


def install(api: Api) -> None:
    """CRDs of job kinds, a queue, and namespaces in which pods can be made."""
    kindcrds.install(api)
    for name in (PLAIN, WITH_DEFAULT):
        api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        waiting.until(partial(_is_there, api, account), account, timeout_s=60, every_s=0.1)
    queue = {"apiVersion": f"{GROUP}/v1beta2", "kind": "LocalQueue", "metadata": {"name": "default"}}
    at = f"/apis/{GROUP}/v1beta2/namespaces/{WITH_DEFAULT}/localqueues"
    made = api.ask("POST", at, queue | {"spec": {"clusterQueue": "q"}})
    assert made.accepted, made.message
    if WEBHOOK:
        api.cluster.kubectl("create", "namespace", NAMESPACE)
        api.cluster.kubectl("create", "serviceaccount", "t-tessera-controller", "-n", NAMESPACE)
        api.cluster.kubectl("apply", "--server-side", "-f", "-", input=rendered(*WEBHOOK))


def _is_there(api: Api, path_: str) -> bool:
    return api.ask("GET", path_).accepted


def await_policies(api: Api, samples: Iterable[Json]) -> None:
    """Return once the policies act on the kind of each sample: those that write, that refuse, and that name a queue.

    An API server learns a new CRD's schema for its policies a few seconds after it serves the CRD.
    """
    for sample in samples:
        for namespace, queue in ((PLAIN, "case"), (PLAIN, "No_Queue"), (WITH_DEFAULT, "")):
            one = deepcopy(sample)
            one["metadata"] |= {"namespace": namespace, "labels": {names.QUEUE_NAME: queue} if queue else {}}
            if queue == "No_Queue":
                ready = partial(_is_refused, api, one)
            else:
                ready = partial(_is_held, api, one, queue or ("" if sample["kind"] == "Pod" else "default"))
            waiting.until(ready, f"the policies about {one['kind']} of queue {queue!r}", timeout_s=60, every_s=0.2)


def _is_refused(api: Api, one: Json) -> bool:
    return "expected the name of a LocalQueue" in api.ask("POST", path(one) + _DRY, one).message


def _is_held(api: Api, one: Json, queue: str) -> bool:
    found = api.ask("POST", path(one) + _DRY, one)
    written = not queue or any(mark in str(found.body.get("spec")) for mark in _STAMPED)
    return found.accepted and written and labels(found.body).get(names.QUEUE_NAME, "") == queue


class WebhookServer:
    """``owner`` is a service account: whose it is decides about children. ``controller`` is Tessera's. ``values`` are
    the chart's, of the controller; ``folder`` is for files. Where the API server has no policies that change objects,
    the controller's webhook answers: ``paths`` are those of a site's own kinds.
    """

    def __init__(self, api: Api, controller: str, values: Json, folder: Path, paths: SuspendPaths) -> None:
        self.api = api
        self._paths = paths
        self._answering = ExitStack()
        self.controller = api.acting_as(controller)
        self.owner = api.acting_as("system:serviceaccount:lab:owner")
        self._values = values
        self._file = folder / "values.json"
        self.use(Setting())

    def use(self, setting: Setting) -> None:
        """The chart's policies with these values, in place of those that are there."""
        self._answering.close()
        self._file.write_text(json.dumps({"controller": self._values | setting.values}))
        for policy in yaml.safe_load_all(rendered(*TEMPLATES, files=(self._file,))):
            plural = f"{policy['kind'].lower()}s".replace("policys", "policies")
            at = f"/apis/{policy['apiVersion']}/{plural}/{policy['metadata']['name']}"
            if "webhooks" in policy:  # its address is the controller's, and stays where it is applied again
                self.api.ask("DELETE", at)
            made = self.api.ask(
                "PATCH", f"{at}?fieldManager=chart&force=true", policy, content_type="application/apply-patch+yaml"
            )
            assert made.accepted, made.message
        if not POLICIES:
            webhook = Webhook(self.api.cluster, files=(self._file,), defaults=(WITH_DEFAULT,), paths=self._paths)
            self._answering.enter_context(webhook)
        self._effective = time.monotonic() + EFFECTIVE_S

    def close(self) -> None:
        self._answering.close()
        self.controller.close()
        self.owner.close()

    def settled(self, asked: Asked) -> Verdict:
        """The answer that stands: each policy takes effect for itself, some seconds after it was made."""
        while True:
            found = self.answer(asked)
            if time.monotonic() > self._effective or not any(differences(asked, found)):
                return found

    def answer(self, asked: Asked) -> Verdict:
        """To the object, and then to its status where it is a Workload's: creating drops a status."""
        user = self.owner if _is_controlled(asked.new) else self.api
        if asked.old is None:
            first = user.ask("POST", path(asked.new) + _DRY, asked.new)
            if not first.accepted or asked.kind != "Workload" or not filled(asked.new.get("status")):
                return first
        with self.lying_there(asked.old or _without_status(asked.new)) as old:
            return self._changed(user, old, asked.new)

    def _changed(self, user: Api, old: Json, new: Json) -> Verdict:
        at, status = path(old, named=True), difference(old.get("status") or {}, new.get("status") or {})
        with_status = new["kind"] == "Workload" and bool(status)
        body = difference(_without_status(old), _without_status(new))
        first = user.patch(at + (_STRICT if with_status else _DRY), body)
        return user.patch(f"{at}/status{_DRY}", {"status": status}) if first.accepted and with_status else first

    @contextmanager
    def lying_there(self, old: Json) -> Iterator[Json]:
        """``old`` on the server as it is: it is created without its queue, and its controller writes the rest."""
        unqueued = {key: value for key, value in labels(old).items() if key != names.QUEUE_NAME}
        first = {**_without_status(old), "metadata": {**old["metadata"], "labels": unqueued}}
        made = self.api.ask("POST", path(old), first)
        assert made.accepted, made.message
        try:
            written = self.controller.patch(path(old, named=True), {"metadata": {"labels": labels(old)}})
            assert written.accepted, written.message
            if filled(old.get("status")):
                written = self.controller.patch(f"{path(old, named=True)}/status", {"status": filled(old["status"])})
                assert written.accepted, written.message
            yield old
        finally:
            self.controller.patch(path(old, named=True), {"metadata": {"finalizers": None}})
            self.api.ask("DELETE", path(old, named=True), {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})


def _without_status(one: Json) -> Json:
    return {key: value for key, value in one.items() if key != "status"}


def _is_controlled(one: Json) -> bool:
    return any(owner.get("controller") for owner in one["metadata"].get("ownerReferences") or ())


@dataclass
class Answers:
    """``listed``: cases that were not sent, by reason; ``kinds``: those whose policies are known to act."""

    cases: int
    kinds: set[str] = field(default_factory=set)
    listed: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def sent(self) -> int:
        return self.answers.total()

    def __str__(self) -> str:
        listed = [f"listed {count}: {reason}" for reason, count in sorted(self.listed.items())]
        return "\n".join([f"{self.cases} webhook cases, {self.sent} sent: {dict(self.answers)}", *listed])


def asked_of(server: WebhookServer) -> Answers:
    """Every case, and what is wrong with the answers."""
    suites.load_runners()
    found = list(cases())
    asked = [one for one in map(webhookcases.asked, found) if one is not None]
    made = Answers(len(found), listed=Counter({"it is about a part of an object": len(found) - len(asked)}))
    reasons = [(one, reason(one)) for one in asked]
    made.listed.update(why for _, why in reasons if why)
    sent = [one for one, why in reasons if not why]
    samples = {one.kind: one.new for one in sent if one.old is None and not one.refused and one.kind in BY_KIND}
    made.kinds = set(samples)
    await_policies(server.api, samples.values())
    in_use = Setting()
    for one in sorted(sent, key=setting):
        if setting(one) != in_use:
            in_use = setting(one)
            server.use(in_use)
        verdict = server.settled(one)
        made.answers[kind_of(verdict)] += 1
        made.wrong += [f"{one.case}: {said}" for said in differences(one, verdict)]
    return made


def kind_of(verdict: Verdict) -> str:
    if verdict.accepted:
        return "accepted"
    return "refused by a policy" if verdict.by_policy else "refused by the schema"


def differences(asked: Asked, verdict: Verdict) -> Iterator[str]:
    """Between an answer and what the case wants; a refusal by a rule says what the rule says."""
    if asked.refused == verdict.accepted:
        yield f"expected {'a refusal' if asked.refused else 'no refusal'}, found {verdict.message or 'none'}"
    elif verdict.accepted:
        if other := unlike(asked, verdict.body):
            yield str(other)
    elif verdict.by_policy and asked.kind in BY_KIND:
        expected = sentences(asked)
        if not any(sentence in verdict.message for sentence in expected):
            yield f"expected one of {expected}, found {verdict.message}"


_WHOLE: Final = ("labels", "annotations", "finalizers", "schedulingGates", "suspend")
"""Nothing but what is wanted stands there."""
_GENERATED: Final = ("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name")
_RECKONED: Final = (ROLE_HASH,)
"""What no policy can write: roles of pods follow from what they ask for."""


def unlike(asked: Asked, found: Json) -> Difference | None:
    """Whether an object that was created lacks what the case wants, or has other marks."""
    if asked.made is not None:
        wanted = _without_status(asked.made)
        return first_difference(filled(_compared(wanted, wanted)), filled(_compared(found, wanted)))
    if "wantManagedBy" in asked.case.expect:
        return first_difference(asked.case.expect["wantManagedBy"], managed_by(found), "managedBy")
    return None


def _compared(found: Any, wanted: Any) -> Any:
    """What stands where something is wanted, and all marks."""
    if isinstance(wanted, list) and isinstance(found, list):
        return [_compared(*pair) for pair in zip(found, wanted, strict=True)] if len(found) == len(wanted) else found
    if not isinstance(found, dict) or not isinstance(wanted, dict):
        return found
    made = {key: _compared(found[key], wanted[key]) for key in wanted if key in found and key not in _WHOLE}
    return made | {key: _marks(found[key]) for key in _WHOLE if key in found}


def _marks(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: value for key, value in found.items() if key not in (*_GENERATED, *_RECKONED)}
    if isinstance(found, list):
        return [one for one in found if one != {"name": names.TOPOLOGY_GATE}]
    return found
