# One image for `serve` and `evict`: locked packages, any user, a read-only root.
#
#   docker build --build-arg VERSION=VERSION -t device-taint-webhook:VERSION .
#   buildah build --timestamp "$SOURCE_DATE_EPOCH" --build-arg SOURCE_DATE_EPOCH --build-arg VERSION=VERSION -t device-taint-webhook:VERSION .
#
# Same sources, same base: same bytes. Pin the base by digest for that, and let the builder set the times of layers as
# well (buildah: --timestamp; BuildKit: --output type=image,rewrite-timestamp=true).

# Python 3.11 or later as python3, with module venv. Both stages start from it, for what is built there runs here.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore PYTHONDONTWRITEBYTECODE=1
WORKDIR /build
COPY requirements.lock requirements-dev.lock ./
# The build backend comes from the lock too; pip would refuse a dependency of it that is missing here. What is
# installed has no pip of its own.
RUN python3 -m venv tools && python3 -m venv --without-pip /opt/device-taint-webhook \
    && awk '/^[a-z]/ { keep = /^(hatchling|packaging|pathspec|pluggy|tomlkit|trove-classifiers)==/ } keep' \
        requirements-dev.lock > requirements-build.lock \
    && tools/bin/pip install --quiet --require-hashes --only-binary :all: -r requirements-build.lock \
    && tools/bin/pip --python /opt/device-taint-webhook/bin/python install --quiet --require-hashes \
        --only-binary :all: --no-compile -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY webhook webhook
ARG SOURCE_DATE_EPOCH=0
# Bytecode that is not compared with its source: it never gets stale here, and holds no times. Of the thousand
# generated clients of kubernetes a handful is ever loaded, so those stay as they are.
RUN SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH} tools/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist . \
    && tools/bin/pip --python /opt/device-taint-webhook/bin/python install --quiet --no-deps --no-index --no-compile \
        --find-links dist device-taint-webhook \
    && PYTHONHASHSEED=0 /opt/device-taint-webhook/bin/python -m compileall -q -x '/kubernetes/(aio/)?client/(api|models)/' \
        --invalidation-mode unchecked-hash /opt/device-taint-webhook/lib \
    && find /opt/device-taint-webhook -exec touch --no-dereference --date "@${SOURCE_DATE_EPOCH}" {} +

FROM ${BASE_IMAGE}
ARG VERSION=unreleased
LABEL org.opencontainers.image.title="device-taint-webhook" \
    org.opencontainers.image.description="Makes Kubernetes device taints safe: admission checks, toleration policy, gentle eviction" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.licenses="Apache-2.0"
# Whatever the base can install packages with for Python goes.
RUN python3 -c "import glob, shutil, site, sysconfig; \
folders = {*site.getsitepackages(), sysconfig.get_path('stdlib')}; \
[shutil.rmtree(path) for folder in folders for name in ('ensurepip', 'pip', 'pip-*', 'setuptools', 'setuptools-*', \
'wheel', 'wheel-*', 'pkg_resources', '_distutils_hack') for path in glob.glob(f'{folder}/{name}')]; \
shutil.rmtree('/usr/share/python-wheels', ignore_errors=True)"
COPY --from=build /opt/device-taint-webhook /opt/device-taint-webhook
ENV PATH=/opt/device-taint-webhook/bin:/usr/local/bin:/usr/bin:/bin PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# By number, so that a kubelet can tell that it is not root. Any other user will do.
USER 65532:65532
EXPOSE 9443 8081 8080
ENTRYPOINT ["device-taint-webhook"]
