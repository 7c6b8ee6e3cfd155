"""Allocators' real words, as users of these engines pasted them, and what only looks like them."""

from __future__ import annotations

import signal

import pytest

from battery.bench.judge import oom

REAL = {
    # Metal and MLX
    "Metal": "libc++abi: terminating due to uncaught exception of type std::runtime_error: [METAL] Command buffer"
    " execution failed: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
    "MLX metal::malloc": "RuntimeError: [metal::malloc] Attempting to allocate 48736917632 bytes which is greater than"
    " the maximum allowed buffer size of 30150672384 bytes.",
    "MLX before 0.20": "libc++abi: terminating due to uncaught exception of type std::runtime_error: Attempting to"
    " allocate 96905199616 bytes which is greater than the maximum allowed buffer size of 17179869184 bytes.",
    "MLX resource limit": "RuntimeError: [metal::malloc] Resource limit (499000) exceeded.",
    "MLX malloc": "RuntimeError: [malloc] Unable to allocate 8589934592 bytes.",
    "MLX malloc_or_wait": "RuntimeError: [malloc_or_wait] Unable to allocate 17179869184 bytes.",
    "MLX CUDA": "RuntimeError: cudaMallocAsync(&data, size, stream) failed: out of memory",
    # CUDA, ROCm, Vulkan
    "torch": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of"
    " 79.11 GiB of which 1.19 GiB is free. If reserved but unallocated memory is large try setting"
    " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.",
    "torch before 2.5": "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB",
    "CUDA runtime": "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at"
    " some other API call",
    "CUDA driver": "cuMemCreate failed: CUDA_ERROR_OUT_OF_MEMORY",
    "cuBLAS": "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "HIP": "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 512.00 MiB.",
    "Vulkan": "ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory",
    # llama.cpp
    "llama.cpp CUDA": "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9866.00 MiB on device 1: cudaMalloc"
    " failed: out of memory",
    "llama.cpp gallocr": "ggml_gallocr_reserve_n: failed to allocate CUDA1 buffer of size 10345253120",
    "llama.cpp tensors": "alloc_tensor_range: failed to allocate CPU buffer of size 37748736000",
    "llama.cpp KV": "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache",
    "llama.cpp compute": "graph_reserve: failed to allocate compute buffers",
    "llama.cpp load": "llama_model_load: error loading model: unable to allocate backend buffer",
    "llama.cpp CUDA0": "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
    "llama.cpp CPU": "ggml_aligned_malloc: insufficient memory (attempted to allocate 36000.00 MB)",
    # vLLM and SGLang
    "vLLM blocks": "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when"
    " initializing the engine.",
    "vLLM KV": "ValueError: To serve at least one request with the model's max seq len (262144), 24.0 GiB KV cache is"
    " needed, which is larger than the available KV cache memory (12.35 GiB).",
    "SGLang": "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    # C, C++, Python, Rust
    "C++": "terminate called after throwing an instance of 'std::bad_alloc'",
    "errno": "OSError: [Errno 12] Cannot allocate memory",
    "Python": "Traceback (most recent call last):\n  File \"engine.py\", line 3, in grow\nMemoryError",
    "numpy": "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 2.00 GiB for an array with shape"
    " (16384, 16384) and data type float64",
    "torch CPU": "RuntimeError: [enforce fail at alloc_cpu.cpp:114] data. DefaultCPUAllocator: can't allocate memory:"
    " you tried to allocate 12884901888 bytes. Error code 12 (Cannot allocate memory)",
    "Rust": "memory allocation of 8589934592 bytes failed",
    # kernels and their guards
    "kernel": "Out of memory: Killed process 26160 (python3) total-vm:31190140kB, anon-rss:22519200kB",
    "kernel cgroup": "Memory cgroup out of memory: Killed process 905 (python) total-vm:1049756kB",
    "systemd": "engine.service: A process of this unit has been killed by the OOM killer.",
    "systemd-oomd": "Killed /user.slice/user-1000.slice/app.scope due to memory pressure for /user.slice being 64.15%",
    "Ray": "Worker was killed due to the node running low on memory.",
    "error code": '{"error": {"code": "insufficient_memory"}}',
}  # fmt: skip

NEAR = {
    "impacting interactivity": "[METAL] Command buffer execution failed: Impacting Interactivity"
    " (0000000e:kIOGPUCommandBufferCallbackErrorImpactingInteractivity)",
    "innocent victim": "[METAL] Command buffer execution failed: Innocent Victim"
    " (00000005:kIOGPUCommandBufferCallbackErrorInnocentVictim)",
    "words with oom in them": "zoom meeting room boom bloom-7b1 Bloomberg mushroom",
    "timeout": "timed out after 124 s; exit 124",
    "bare kill": "exit -9: Killed",
    "bounds": "RuntimeError: memory access out of bounds",
    "memory bounds": "wasm trap: pointer is out of memory bounds",
    "slots": "RuntimeError: the cache is out of memory slots",
    "illegal access": "CUDA error: an illegal memory access was encountered",
    "corruption": "malloc(): invalid size (unsorted)\nfree(): double free detected in tcache 2",
    "segfault": "Segmentation fault (core dumped)",
    "TLS": "libgomp.so.1: cannot allocate memory in static TLS block",
    "llama.cpp slot": "decode: failed to find a memory slot for batch of size 512",
    "llama.cpp pinned": "ggml_cuda_host_malloc: failed to allocate 1900,00 MiB of pinned memory: invalid argument",
    "llama.cpp advice": "failed to create context, try reducing --n-gpu-layers if you're running out of VRAM",
    "vLLM advice": "CUDA graphs can take additional 1~3 GiB memory per GPU. If you are running out of memory, consider"
    " decreasing `gpu_memory_utilization` or enforcing eager mode.",
    "vLLM preemption": "Sequence group 0 is preempted because there is not enough KV cache space.",
    "vLLM dead": "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
    "context": "the request exceeds the available context size (4096 tokens), try increasing it",
    "maximum context": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",
    "KV full": "KV cache is full",
    "rate limit": "429 Too Many Requests: rate limit exceeded",
    "other limit": "ulimit: resource limit raised to 65536 open files",
    "advice": "Consider a smaller batch to avoid out of memory errors",
    "warning": "WARNING: a long prompt may lead to an out-of-memory condition",
    "condition": "to prevent CUDA out of memory, lower --mem-fraction-static",
    "file name": "Unable to allocate conflict-free filename for report.md",
    "counter": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0",
    "nothing": "",
}


@pytest.mark.parametrize("name", REAL)
def test_allocators_words_are_recognised_with_what_stands_around_them(name: str) -> None:
    found = oom.words({"in the answer": None, "in the log": f"loading\n{REAL[name]}\nbye"})
    assert found is not None and found.where == "in the log"
    assert found.text in REAL[name] and "\n" not in found.text


@pytest.mark.parametrize("name", NEAR)
def test_near_misses_are_not(name: str) -> None:
    assert oom.words({"in the log": NEAR[name]}) is None


def test_advice_does_not_hide_the_failure_that_follows_it() -> None:
    log = f"{NEAR['vLLM advice']}\n{REAL['torch']}"
    found = oom.words({"in the log": log})
    assert found is not None and "Tried to allocate" in found.text


def test_the_first_place_that_says_it_is_named() -> None:
    both = {"in the answer": REAL["MLX malloc"], "in the log": REAL["kernel"]}
    found = oom.words(both)
    assert found is not None and (found.where, found.family) == ("in the answer", "MLX")


PROMPT = 'My "trainer" dies.\nIt says CUDA out of memory all the time. What does MemoryError mean?'


@pytest.mark.parametrize(
    "error",
    [
        '{"error": "bad request: ' + PROMPT.replace('"', '\\"').replace("\n", "\\n") + '"}',
        f"DEBUG prompt={PROMPT!r}",
        "DEBUG prompt: It says CUDA out of memory all the time. What does",
    ],
)
def test_an_echo_of_the_request_is_no_evidence(error: str) -> None:
    assert oom.words({"in the log": error}) is not None
    assert oom.words({"in the log": error}, [PROMPT]) is None
    # and the server's own words beside the echo still are
    assert oom.words({"in the log": f"{error}\n{REAL['C++']}"}, [PROMPT]) is not None
    assert oom.words({"in the log": f"{error}\n{REAL['torch']}"}, [PROMPT]) is not None


def test_a_short_question_that_comes_back_whole_is_an_echo() -> None:
    assert oom.words({"in the log": 'refused: "Out of memory?"'}, ["Why out of memory?"])
    assert (
        oom.words({"in the log": 'refused: "Why out of memory?"'}, ["Why out of memory?"]) is None
    )


@pytest.mark.parametrize(
    ("status", "yes"),
    [(-signal.SIGKILL, True), (137, True), (-signal.SIGABRT, False), (134, False), (124, False), (None, False)],
)  # fmt: skip
def test_sigkill_as_a_parent_or_a_shell_tells_it(status: int | None, yes: bool) -> None:
    assert oom.killed(status) is yes
