# One file, several targets: `build` (everything compiled), `test` (runs tests/run), and the small ones that ship:
# `router`, `worker`. (`operator` comes with the operator's sources.)
#
#   docker build --target router -t penstock/router .
#
# The programs link protobuf, yaml-cpp, spdlog and friends dynamically; `runtime` holds just those libraries.
FROM debian:12-slim AS build
WORKDIR /src
COPY deploy/dependencies deploy/build deploy/
RUN deploy/dependencies --build
COPY . .
RUN deploy/build release penstock-router penstock-worker \
    && mkdir -p /out && cp build/release/bin/penstock-router build/release/bin/penstock-worker /out/ \
    && strip /out/*
# Exactly the shared libraries that a program needs, with the loader.
RUN for program in penstock-router penstock-worker; do \
      mkdir -p /root-$program/usr/bin; \
      cp /out/$program /root-$program/usr/bin/; \
      ldd /out/$program | grep -o '/[^ ]*' | sort -u | while read -r library; do \
        mkdir -p "/root-$program$(dirname "$library")"; cp -L "$library" "/root-$program$library"; done; \
    done; \
    mkdir -p /root-penstock-worker/usr/lib/x86_64-linux-gnu/ucx; \
    cp -L /usr/lib/x86_64-linux-gnu/ucx/*.so* /root-penstock-worker/usr/lib/x86_64-linux-gnu/ucx/ 2>/dev/null || true

FROM build AS test
CMD ["tests/run"]

FROM scratch AS router
COPY --from=build /root-penstock-router/ /
USER 65532:65532
EXPOSE 8000 9180
ENTRYPOINT ["/usr/bin/penstock-router"]

FROM scratch AS worker
COPY --from=build /root-penstock-worker/ /
USER 65532:65532
EXPOSE 7000 7100 9180
ENTRYPOINT ["/usr/bin/penstock-worker"]
