"""Resolves the names of a pod's claims into what they ask, from the latest templates, claims and classes.

A claim that cannot be counted is left out and reported: one whose template is missing, whose selectors cannot be
evaluated, or that may get devices of no single node.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Final

from controller.objects.deviceclaims import DeviceClass, ResourceClaim, ResourceClaimSpec, ResourceClaimTemplate
from controller.objects.meta import KubernetesObject
from controller.scheduler.dra.allocation.offers import Slices
from controller.scheduler.dra.allocation.requests import (
    ClaimRequest,
    NotCountedError,
    PodClaimsRequest,
    SharedClaim,
    claim_request,
    extended_claim,
)
from controller.scheduler.dra.allocation.views import selected
from controller.scheduler.dra.claims.book import extended_names, is_of_one_pod
from controller.scheduler.dra.claims.celvalues import CelError
from controller.scheduler.model.caches import Bounded
from controller.scheduler.model.deviceclaims import ClaimKey, ClaimNames
from controller.scheduler.model.resources import Amount, ResourceName

Extended = tuple[tuple[ResourceName, Amount], ...]
"""Extended resources that a pod gets through claims, and the number of devices of each."""

_MOST_KEPT: Final = 1024
_MOST_SPECS: Final = 16_384
ELSEWHERE: Final = "\0"
"""Stands for the node of a shared claim whose devices are of no single node; no node has this name. Such a claim asks
nothing of any node.
"""


class ClaimRequests:
    """What claims ask, by their names. ``put`` and ``drop`` take classes, templates and shared claims. ``version``
    changes whenever an ask may have changed.

    ``where`` returns the node on which a shared claim has its devices, or is planned to have them; empty while that is
    open.
    """

    def __init__(self, slices: Slices, where: Callable[[ClaimKey], str]) -> None:
        self._slices = slices
        self._where = where
        self._classes: dict[str, DeviceClass] = {}
        self._templates: dict[str, ResourceClaimSpec] = {}
        self._named: dict[ClaimKey, ResourceClaimSpec] = {}
        self._contents: Bounded[tuple[tuple[ClaimRequest, ...], tuple[SharedClaim, ...]], PodClaimsRequest] = Bounded(
            _MOST_KEPT
        )
        self._known: Bounded[ClaimNames, tuple[int, PodClaimsRequest | None]] = Bounded(_MOST_KEPT)
        self._specs: Bounded[tuple[bool, str], ClaimRequest | NotCountedError] = Bounded(_MOST_SPECS)
        self.extended: Mapping[str, str] = {}
        """DeviceClass by extended resource, for classes whose selectors can be evaluated."""
        self._joined: Bounded[tuple[PodClaimsRequest | None, Extended], PodClaimsRequest] = Bounded(_MOST_KEPT)
        self._versions = count()
        self.version = next(self._versions)

    # -- objects -----------------------------------------------------------------------------------------------------

    def put(self, given: KubernetesObject) -> bool:
        """Store an object. Returns whether asks may have changed by it."""
        match given:
            case DeviceClass():
                known, extended = self._classes.get(given.metadata.name), self.extended
                self._classes[given.metadata.name] = given
                self._extend()
                selects = known is None or known.spec.selectors != given.spec.selectors
                return self._changed(selects or self.extended != extended, every=True)
            case ResourceClaimTemplate():
                before = self._templates.get(given.key)
                self._templates[given.key] = given.spec.spec
                return self._changed(before != given.spec.spec, (True, given.key))
            case ResourceClaim() if not is_of_one_pod(given):
                before = self._named.get(given.key)
                self._named[given.key] = given.spec
                return self._changed(before != given.spec, (False, given.key))
        return False

    def drop(self, kind: type[KubernetesObject], key: str) -> bool:
        """Remove an object by its key, ``namespace/name``; a class has an empty namespace. Returns whether asks may
        have changed.
        """
        if kind is DeviceClass:
            gone = self._classes.pop(key.removeprefix("/"), None) is not None
            self._extend()
            return self._changed(gone, every=True)
        if kind is ResourceClaimTemplate:
            return self._changed(self._templates.pop(key, None) is not None, (True, key))
        if kind is ResourceClaim:
            return self._changed(self._named.pop(key, None) is not None, (False, key))
        return False

    @property
    def by_name(self) -> bool:
        """Whether there are shared claims."""
        return bool(self._named)

    def stale(self) -> None:
        """Change ``version``: something else that asks depend on has changed."""
        self.version = next(self._versions)

    def forget(self) -> None:
        """Forget all resolved claims after devices of no single node have changed."""
        self._changed(True, every=True)

    def _extend(self) -> None:
        found = extended_names(self._classes.values(), implicit=True)
        self.extended = {resource: name for resource, name in found.items() if self._is_counted(resource, name)}
        self._joined.clear()

    def _is_counted(self, resource: str, device_class: str) -> bool:
        """Whether the resource's class can be counted. If not, pods find only what nodes offer themselves."""
        try:
            extended_claim([(resource, device_class, 1)], self._classes)
        except NotCountedError:
            return False
        return True

    def _changed(self, changed: bool, key: tuple[bool, str] | None = None, *, every: bool = False) -> bool:
        if changed:
            self.stale()
            if every:
                self._specs.clear()
            elif key is not None:
                self._specs.pop(key, None)
        return changed

    # -- questions ---------------------------------------------------------------------------------------------------

    def of(self, names: ClaimNames) -> PodClaimsRequest | None:
        """What the claims ask; None where none of them is counted."""
        known = self._known.get(names)
        if known is not None and known[0] == self.version:
            return known[1]
        each = tuple(asked for _, asked in self._of_templates(names) if isinstance(asked, ClaimRequest))
        shared = tuple(self._shared(names))
        found = self._made(each, shared) if each or shared else None
        self._known.remember(names, (self.version, found))
        return found

    def joined(self, ask: PodClaimsRequest | None, wanted: Extended) -> PodClaimsRequest | None:
        """The ask with one more claim, for extended resources, at its end, as the scheduler makes it."""
        if not wanted:
            return ask
        known = self._joined.get((ask, wanted))
        if known is not None:
            return known
        claim = extended_claim(((name, self.extended[name], number) for name, number in wanted), self._classes)
        each, shared = (ask.each, ask.shared) if ask is not None else ((), ())
        return self._joined.remember((ask, wanted), self._made((*each, claim), shared))

    def problems(self, names: ClaimNames) -> dict[tuple[bool, str], str]:
        """Why claims of the pod are not counted, by (whether it is a template, ``namespace/name``)."""
        keys = [(True, f"{names.namespace}/{name}") for _, name in names.templates]
        keys += [(False, f"{names.namespace}/{name}") for _, name in names.claims]
        asked = {key: self._spec(self._templates if key[0] else self._named, key) for key in keys}
        return {key: str(found) for key, found in asked.items() if isinstance(found, NotCountedError)}

    def claims_of(self, names: ClaimNames) -> tuple[str, ...]:
        """The pod's names for the claims of ``PodClaimsRequest.each``, in their order."""
        return tuple(claim for claim, asked in self._of_templates(names) if isinstance(asked, ClaimRequest))

    def _of_templates(self, names: ClaimNames) -> Iterator[tuple[str, ClaimRequest | NotCountedError]]:
        for claim, name in names.templates:
            yield claim, self._spec(self._templates, (True, f"{names.namespace}/{name}"))

    def _shared(self, names: ClaimNames) -> Iterator[SharedClaim]:
        for name in dict.fromkeys(name for _, name in names.claims):
            key = f"{names.namespace}/{name}"
            asked, where = self._spec(self._named, (False, key)), self._where(key)
            if isinstance(asked, ClaimRequest) and where != ELSEWHERE:
                yield SharedClaim(key, self._made((asked,), ()), where)

    def _made(self, each: tuple[ClaimRequest, ...], shared: tuple[SharedClaim, ...]) -> PodClaimsRequest:
        known = self._contents.get((each, shared))
        return self._contents.remember((each, shared), PodClaimsRequest(each, shared)) if known is None else known

    def _spec(self, specs: Mapping[str, ResourceClaimSpec], key: tuple[bool, str]) -> ClaimRequest | NotCountedError:
        known = self._specs.get(key)
        if known is not None:
            return known
        try:
            return self._specs.remember(key, self._resolved(specs, key))
        except NotCountedError as error:
            return self._specs.remember(key, error)

    def _resolved(self, specs: Mapping[str, ResourceClaimSpec], key: tuple[bool, str]) -> ClaimRequest:
        """What a claim or template asks. Raises NotCountedError."""
        spec = specs.get(key[1])
        if spec is None:
            raise NotCountedError(f"there is no {'ResourceClaimTemplate' if key[0] else 'ResourceClaim'} {key[1]}")
        asked = claim_request(spec, self._classes)
        spread = self._slices.offer("")
        for wanted in (wanted for request in asked.requests for wanted in request):
            for driver, device in zip(spread.drivers, spread.devices, strict=True):
                try:
                    may_be = selected(wanted, driver, device)
                except CelError:
                    may_be = True
                if may_be:
                    raise NotCountedError(
                        f"request {wanted.label}: {driver} has such devices that are of no single node"
                    )
        return asked
