#!/usr/bin/env bash
# The fused epilogue alone on a machine with a GPU and no network: the first part of gpu_proofs.sh, which says what it needs.
ONLY=epilogue exec bash "$(dirname "$0")/gpu_proofs.sh" "$@"
