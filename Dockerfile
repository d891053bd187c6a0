# The manager's image: the locked dependencies and the package, run by an unprivileged user on a read-only file system.
# It contains no build or installation tools. Dependencies have their own layer, so that an upgrade pulls little.
# The default base is a tag, because a tag follows Debian's security fixes; a digest would keep known vulnerabilities until
# it was replaced here. Releases and reproducible builds specify the digest they tested:
# --build-arg BASE=docker.io/library/python:3.11-slim@sha256:…
ARG BASE=python:3.11-slim
FROM ${BASE} AS dependencies
WORKDIR /src
RUN python -m venv --without-pip /opt/pykruise
COPY requirements.lock ./
# The API client has two thousand modules of unused models; compiled, they would be a third of the image.
# The file system is read-only, so bytecode need not be checked against its source.
RUN pip --disable-pip-version-check --python /opt/pykruise/bin/python install --no-cache-dir --no-compile \
        --only-binary :all: --require-hashes --requirement requirements.lock \
 && /opt/pykruise/bin/python -m compileall -q --invalidation-mode unchecked-hash -x '/kubernetes/.*/(models|api)/' \
        /opt/pykruise/lib

FROM dependencies AS program
COPY requirements-dev.lock pyproject.toml README.md LICENSE ./
# The build tools are locked as well, and remain in this stage.
RUN awk '/^[^ ]/ { wanted = /^(setuptools|wheel)==/ } wanted' requirements-dev.lock > build.lock \
 && pip --disable-pip-version-check install --no-cache-dir --no-deps --require-hashes --target /build --requirement build.lock
COPY app app
COPY policies policies
COPY pykruise pykruise
RUN PYTHONPATH=/build pip --disable-pip-version-check --python /opt/pykruise/bin/python install --no-cache-dir \
        --no-compile --no-deps --no-build-isolation --prefix /program . \
 && rm -r /program/lib/python3*/site-packages/app/sandbox /program/lib/python3*/site-packages/app/generate \
 && /opt/pykruise/bin/python -m compileall -q --invalidation-mode unchecked-hash /program/lib

FROM ${BASE}
LABEL org.opencontainers.image.title=pykruise org.opencontainers.image.licenses=Apache-2.0
# Remove the base image's tools for installing packages.
RUN rm -rf /usr/local/lib/python3*/site-packages/* /usr/local/lib/python3*/ensurepip /usr/local/bin/pip* /usr/local/bin/wheel \
        /usr/lib/python3*/ensurepip /usr/lib/python3/dist-packages/pip* /usr/share/python-wheels /usr/bin/pip*
COPY --from=dependencies /opt/pykruise /opt/pykruise
COPY --from=program /program /opt/pykruise
ENV PATH=/opt/pykruise/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65534:65534
EXPOSE 9876 8080 8000
ENTRYPOINT ["pykruise"]
CMD ["manager"]
