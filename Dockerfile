# The image of the agent and of the controller. Build it in the repository's root: docker build -t tessera-agent:0.2.0 .
#
# The agent runs as root: kubelet's sockets, its own sockets beside them and the driver's capability files belong to root.
# It needs no other privilege: the chart drops all capabilities and makes the root file system read-only.
ARG PYTHON=python:3.11-slim

FROM ${PYTHON} AS build
COPY requirements/run.txt /build/run.txt
# Exact versions, each checked against its hash; nothing is compiled.
RUN python -m venv --without-pip /opt/tessera \
 && python -m pip --python /opt/tessera/bin/python install --no-cache-dir --no-compile --only-binary=:all: \
      --require-hashes --requirement /build/run.txt
COPY failpoints /build/src/failpoints
COPY inventory /build/src/inventory
COPY agent /build/src/agent
COPY deviceplugin /build/src/deviceplugin
COPY kube /build/src/kube
COPY simulator /build/src/simulator
COPY yamlfile /build/src/yamlfile
COPY controller /build/src/controller
COPY docs/runbooks /build/src/controller/people/page/runbooks
COPY history /build/src/history
COPY cli /build/src/cli
COPY kubeletapi /build/src/kubeletapi
COPY hack/image/leanbytecode.py /build/leanbytecode.py
# The project is pure Python: its rooms are the packages, and its commands are two lines each. No build backend is fetched.
RUN cp -r /build/src/. "$(/opt/tessera/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
 && for command in tessera-agent:agent tessera-controller:controller tessera:cli; do \
      printf '#!/opt/tessera/bin/python\nfrom %s.main import main\nraise SystemExit(main())\n' "${command#*:}" \
        > "/opt/tessera/bin/${command%%:*}"; \
      chmod 0755 "/opt/tessera/bin/${command%%:*}"; \
    done \
 && /opt/tessera/bin/python -X no_debug_ranges /build/leanbytecode.py /opt/tessera/bytecode \
      $(/opt/tessera/bin/python -c 'import sysconfig; print(sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"))') \
 && export PYTHONPYCACHEPREFIX=/opt/tessera/bytecode PYTHONDONTWRITEBYTECODE=1 \
 && /opt/tessera/bin/tessera-agent --version && /opt/tessera/bin/tessera-controller --version

FROM ${PYTHON}
LABEL org.opencontainers.image.title="tessera-agent" org.opencontainers.image.licenses="Apache-2.0"
# No installer is left in the image: neither Python's, nor the copy of pip that ensurepip unpacks, nor Debian's. Debian's list
# of packages in /var/lib/dpkg stays, for programs that look for known faults.
RUN python -m pip uninstall --yes --quiet --root-user-action=ignore pip setuptools wheel \
 && rm -rf "$(python -c 'import ensurepip, os; print(os.path.dirname(ensurepip.__file__))')" \
      /usr/bin/apt* /usr/bin/dpkg* /usr/lib/apt
COPY --from=build /opt/tessera /opt/tessera
COPY LICENSE /usr/share/doc/tessera/LICENSE
# All bytecode, the standard library's too, is in one folder: published images come without any.
ENV PATH=/opt/tessera/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPYCACHEPREFIX=/opt/tessera/bytecode
EXPOSE 9400
ENTRYPOINT ["tessera-agent"]
