"""What the rules of a kind say of a job."""

from controller.jobs.framework.kind import JobKind, Refusal, Review, refused
from controller.jobs.framework.raw import Json


def broken(kind: JobKind, job: Json, *, before: Json | None = None) -> tuple[Refusal, ...]:
    """By its own rules alone; ``before``: what the job was before it was changed."""
    return refused(kind.rules, Review(new=job, before=before))
