# The manager's image: the locked dependencies and the package, run by a user without rights.
FROM python:3.11-slim AS build
WORKDIR /src
COPY requirements.lock pyproject.toml README.md LICENSE ./
RUN python -m venv /opt/pykruise \
 && /opt/pykruise/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements.lock
COPY app app
COPY policies policies
COPY deploy/crds deploy/crds
RUN /opt/pykruise/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps . \
 && /opt/pykruise/bin/pip uninstall --yes pip setuptools wheel \
 && /opt/pykruise/bin/python -m compileall -q /opt/pykruise/lib

FROM python:3.11-slim
COPY --from=build /opt/pykruise /opt/pykruise
ENV PATH=/opt/pykruise/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65534:65534
EXPOSE 9876 8080 8000
ENTRYPOINT ["pykruise"]
CMD ["manager"]
