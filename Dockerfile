# Two images that hold the vlmtune binary and the libraries it loads, and neither compilers nor Python.
#
#   docker build -t vlmtune .                       CPU only, about 0.6 GB (target cpu, the last one)
#   docker build -t vlmtune:cuda --target cuda .    with the CUDA plugin, about 3.1 GB; run it with --gpus all
#   docker run --rm -v "$PWD:/work" -u "$(id -u):$(id -g)" vlmtune infer --model models/llava --image cat.jpg --prompt "What is this?"

FROM debian:bookworm-slim AS tools
WORKDIR /src
COPY scripts/setup scripts/setup
RUN scripts/setup && rm -rf ~/.cache
# gather FILE...: copies all shared libraries that the files ask for to /opt/vlmtune/lib, but those of the base image.
COPY --chmod=755 <<"SCRIPT" /usr/local/bin/gather
#!/bin/bash
set -euo pipefail
libraries=$(LD_LIBRARY_PATH=/src/.venv/torch/lib:/src/.venv/cuda/lib ldd "$@")
if grep 'not found' <<<"$libraries"; then exit 1; fi
mkdir -p /opt/vlmtune/lib
awk '$3 ~ "^/" {print $3}' <<<"$libraries" | sort -u |
  grep -vE '/(ld-linux[^/]*|lib(c|m|dl|rt|util|pthread|gcc_s|stdc\+\+))\.so[^/]*$' | xargs cp -Ln -t /opt/vlmtune/lib
SCRIPT

FROM tools AS build-cpu
COPY . .
RUN cmake --preset release -D VLMTUNE_CUDA=OFF && cmake --build --preset release \
 && cmake --install build/release --prefix /opt/vlmtune --strip && gather /opt/vlmtune/bin/vlmtune

FROM tools AS build-cuda
RUN scripts/setup --cuda && rm -rf ~/.cache
ENV PATH=/src/.venv/cuda/bin:$PATH
COPY . .
# The plugin and what LibTorch opens by name only (run-time compilation) are gathered besides what the binary links.
# hadolint ignore=DL3003
RUN cmake --preset release -D VLMTUNE_CUDA=ON && cmake --build --preset release \
 && cmake --install build/release --prefix /opt/vlmtune --strip \
 && find /opt/vlmtune -name '*.so' -exec gather /opt/vlmtune/bin/vlmtune {} + \
 && cd .venv/torch/lib && gather ./libtorch_cuda.so ./libtorch_cuda_linalg.so \
 && cp -L libtorch_cuda.so libtorch_cuda_linalg.so libc10_cuda.so libcaffe2_nvrtc.so /opt/vlmtune/lib/ \
 && cd /src/.venv/cuda/lib && cp -L libnvrtc.so.13 libnvrtc-builtins.so.13.0 /opt/vlmtune/lib/

FROM debian:bookworm-slim AS cuda
COPY --from=build-cuda /opt/vlmtune /opt/vlmtune
ENV PATH=/opt/vlmtune/bin:$PATH \
    LD_LIBRARY_PATH=/opt/vlmtune/lib \
    CUDA_MODULE_LOADING=LAZY \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
RUN ["vlmtune", "--version"]
WORKDIR /work
ENTRYPOINT ["vlmtune"]
CMD ["--help"]

FROM debian:bookworm-slim AS cpu
COPY --from=build-cpu /opt/vlmtune /opt/vlmtune
ENV PATH=/opt/vlmtune/bin:$PATH \
    LD_LIBRARY_PATH=/opt/vlmtune/lib
RUN ["vlmtune", "--version"]
WORKDIR /work
ENTRYPOINT ["vlmtune"]
CMD ["--help"]
