# One file, several targets: `build` (the programs), `test` (runs tests/run), and the small ones that ship:
# `router`, `worker`, `operator`, `worker-cuda`.
#
#   docker build --target router -t penstock/router .
#   buildah build --build-context programs=build/image --target router .    with programs that are built already
#
# An image that ships holds one program, the shared libraries it loads, their licences and a list of them
# (/usr/share/doc/sbom.spdx.json); no shell, no package manager. It runs as user 65532 and writes only to /tmp.
ARG BASE=docker.io/library/debian:12.11-slim
FROM ${BASE} AS sources
WORKDIR /src
ENV CCACHE_DIR=/ccache
# Another one for a machine behind a proxy with an authority of its own. Not every builder hands an ARG on to stages that follow.
ARG CARGO_HTTP_CAINFO=/etc/ssl/certs/ca-certificates.crt
ENV CARGO_HTTP_CAINFO=${CARGO_HTTP_CAINFO}
COPY deploy/dependencies deploy/build deploy/
# The list of packages is written by jq.
RUN deploy/dependencies --build && apt-get install -y -qq --no-install-recommends jq
COPY . .

FROM sources AS build
ARG PROGRAMS="penstock-router penstock-worker penstock-operator"
RUN deploy/build release ${PROGRAMS} \
    && for program in ${PROGRAMS}; do \
         deploy/images/root build/release/bin/$program /image/$program; done

FROM build AS test
CMD ["tests/run"]

FROM scratch AS programs
COPY --from=build /image/ /

FROM scratch AS router
ARG VERSION=dev
LABEL org.opencontainers.image.title=penstock-router org.opencontainers.image.licenses=Apache-2.0 \
      org.opencontainers.image.version=${VERSION}
COPY --from=programs /penstock-router/ /
USER 65532:65532
EXPOSE 8000 9180
ENTRYPOINT ["/usr/bin/penstock-router"]

FROM scratch AS worker
ARG VERSION=dev
LABEL org.opencontainers.image.title=penstock-worker org.opencontainers.image.licenses=Apache-2.0 \
      org.opencontainers.image.version=${VERSION}
COPY --from=programs /penstock-worker/ /
USER 65532:65532
EXPOSE 7000 7001 9180
ENTRYPOINT ["/usr/bin/penstock-worker"]

# The same for NVIDIA GPUs, in 0.6 GB: cuBLASLt comes along, the driver's libraries from the machine (NVIDIA's container toolkit).
FROM sources AS build-cuda
RUN apt-get install -y -qq --no-install-recommends python3-venv \
    && deploy/build cuda penstock-worker \
    && deploy/images/root build/cuda/bin/penstock-worker /image/penstock-worker-cuda "$(deploy/cuda-libraries | tail -n 1)"

FROM scratch AS programs-cuda
COPY --from=build-cuda /image/ /

FROM scratch AS worker-cuda
ARG VERSION=dev
LABEL org.opencontainers.image.title=penstock-worker-cuda org.opencontainers.image.version=${VERSION} \
      org.opencontainers.image.licenses="Apache-2.0 AND LicenseRef-NVIDIA-CUDA-EULA"
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=programs-cuda /penstock-worker-cuda/ /
USER 65532:65532
EXPOSE 7000 7001 9180
ENTRYPOINT ["/usr/bin/penstock-worker"]

FROM scratch AS operator
ARG VERSION=dev
LABEL org.opencontainers.image.title=penstock-operator org.opencontainers.image.licenses=Apache-2.0 \
      org.opencontainers.image.version=${VERSION}
COPY --from=programs /penstock-operator/ /
USER 65532:65532
EXPOSE 9180
ENTRYPOINT ["/usr/bin/penstock-operator"]
