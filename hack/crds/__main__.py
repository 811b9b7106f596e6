"""Write the files; with ``--check`` only say whether they are stale.

``--pod-template FILE`` first takes the pod template's schema anew from Kubernetes' own OpenAPI document of core/v1
(``kubectl get --raw /openapi/v3/api/v1``, or the one in the module k8s.io/kubernetes). ``--fields FOLDER CRD...`` takes
the names of Kubernetes' fields anew from that module's folder ``api/openapi-spec/v3``, and those of others' CRDs.
"""

import sys
from pathlib import Path

from hack.crds import fields, podtemplate, rendered


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--pod-template"]:
        podtemplate.take(Path(arguments[1]))
    if arguments[:1] == ["--fields"]:
        fields.take(Path(arguments[1]), map(Path, arguments[2:]))
    stale = {path: text for path, text in rendered().items() if not path.exists() or path.read_text() != text}
    check = "--check" in arguments
    for path, text in stale.items():
        print(f"{'stale' if check else 'wrote'}: {path.name}")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
