# One image for `serve`, `evict` and every other verb: locked packages, any user, a read-only root.
#
#   docker build --build-arg VERSION=VERSION -t device-taint-webhook:VERSION .
#   docker buildx build --platform linux/amd64,linux/arm64 --build-arg VERSION=VERSION ...
#   buildah build --timestamp "$SOURCE_DATE_EPOCH" --build-arg SOURCE_DATE_EPOCH --build-arg VERSION=VERSION ...
#
# Same sources, same base: same bytes. Pin the base by digest for that, and let the builder set the times of layers as
# well (buildah: --timestamp; BuildKit: --output type=image,rewrite-timestamp=true). docs/install.md lists the
# build arguments, those for air gaps among them.

# Python 3.11 or later as python3, with module venv; best NAME@sha256:DIGEST. Packages are chosen by the first stage's
# Python and glibc, so where that starts from another image (BUILD_IMAGE), it has to have the same.
ARG BASE_IMAGE=python:3.13-slim-trixie
ARG BUILD_IMAGE=${BASE_IMAGE}

# On the processor of the machine that builds, whatever it builds for: wheels need no running, and bytecode is the same.
FROM --platform=${BUILDPLATFORM} ${BUILD_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore PYTHONDONTWRITEBYTECODE=1
WORKDIR /build
COPY requirements.lock requirements-dev.lock release/contents.py ./
# A mirror of the package index, and the PEM text of the CA that signed its certificate. Neither gets into the image.
ARG PIP_INDEX_URL
ARG CA_CERTIFICATE
ARG TARGETARCH
# The build backend comes from the lock too. What is installed has no pip of its own.
RUN if [ -n "${CA_CERTIFICATE}" ]; then printf '%s\n' "${CA_CERTIFICATE}" > ca.pem; export PIP_CERT=/build/ca.pem; fi \
    && python3 -m venv tools && python3 -m venv --without-pip /opt/device-taint-webhook \
    && python3 contents.py tools < requirements-dev.lock > requirements-build.lock \
    && tools/bin/pip install --quiet --require-hashes --only-binary :all: -r requirements-build.lock \
    && tools/bin/pip install --quiet --require-hashes --only-binary :all: --no-deps --no-compile \
        $(python3 contents.py platforms "${TARGETARCH:-$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')}") \
        --target "$(echo /opt/device-taint-webhook/lib/python3*/site-packages)" -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY webhook webhook
ARG SOURCE
ARG VERSION=unreleased
# Links in reports lead to the source, where that is given.
RUN if [ -n "${SOURCE}" ]; then sed -i "s#https://repository.example.com/device-taint-webhook/blob/main/#${SOURCE}/blob/v${VERSION}/#" \
    webhook/api/names.py; fi
ARG SOURCE_DATE_EPOCH=0
# Bytecode that is not compared with its source: it never gets stale here, and holds no times.
RUN SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH} tools/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist . \
    && tools/bin/pip --python /opt/device-taint-webhook/bin/python install --quiet --no-deps --no-index --no-compile \
        --find-links dist device-taint-webhook \
    && rm -f /opt/device-taint-webhook/.gitignore \
    && python3 contents.py finish /opt/device-taint-webhook /opt/device-taint-webhook/licenses \
    && PYTHONHASHSEED=0 /opt/device-taint-webhook/bin/python -m compileall -q \
        --invalidation-mode unchecked-hash /opt/device-taint-webhook/lib \
    && find /opt/device-taint-webhook -exec touch --no-dereference --date "@${SOURCE_DATE_EPOCH}" {} +

# Named, for buildah would take the platform of the first stage.
FROM --platform=${TARGETPLATFORM} ${BASE_IMAGE}
ARG BASE_IMAGE
ARG BASE_DIGEST
ARG VERSION=unreleased
ARG REVISION
ARG SOURCE
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="device-taint-webhook" \
    org.opencontainers.image.description="Makes Kubernetes device taints safe: admission checks, toleration policy, gentle eviction" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.source="${SOURCE}" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.created="${CREATED}" \
    org.opencontainers.image.base.name="${BASE_IMAGE}" \
    org.opencontainers.image.base.digest="${BASE_DIGEST}"
# Whatever the base can install packages with for Python goes.
RUN python3 -c "import glob, os, shutil, site, sysconfig; \
folders = {*site.getsitepackages(), sysconfig.get_path('stdlib')}; \
[shutil.rmtree(path) for folder in folders for name in ('ensurepip', 'pip', 'pip-*', 'setuptools', 'setuptools-*', \
'wheel', 'wheel-*', 'pkg_resources', '_distutils_hack') for path in glob.glob(f'{folder}/{name}')]; \
[os.remove(path) for path in glob.glob('/usr/local/bin/pip*')]; \
shutil.rmtree('/usr/share/python-wheels', ignore_errors=True)"
COPY --from=build /opt/device-taint-webhook /opt/device-taint-webhook
ENV PATH=/opt/device-taint-webhook/bin:/usr/local/bin:/usr/bin:/bin PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# By number, so that a kubelet can tell that it is not root. Any other user will do.
USER 65532:65532
EXPOSE 9443 8081 8080
ENTRYPOINT ["device-taint-webhook"]
