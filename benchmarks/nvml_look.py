"""Every NVML reading of this machine over some seconds, ours and the raw ones beside them, as one JSON on stdout.

    python benchmarks/nvml_look.py [SECONDS] > nvml.json

Half of the time idle, half of it under a matmul where torch is there. Needs `pynvml` (nvidia-ml-py; its one file
pynvml.py in the folder is enough). What it prints under `devices` is the form of tests/fixtures/sensors/nvml-*.json.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FIELDS = [74, 75, 269, 270, 271]
POLICIES = (0, 1)
SM = 1
PLAIN = {
    "nvmlDeviceGetName": (),
    "nvmlDeviceGetTemperatureV": (0,),
    "nvmlDeviceGetTemperature": (0,),
    "nvmlDeviceGetPowerUsage": (),
    "nvmlDeviceGetEnforcedPowerLimit": (),
    "nvmlDeviceGetClockInfo": (SM,),
    "nvmlDeviceGetMaxClockInfo": (SM,),
    "nvmlDeviceGetDefaultApplicationsClock": (SM,),
    "nvmlDeviceGetCurrentClocksEventReasons": (),
    "nvmlDeviceGetCurrentClocksThrottleReasons": (),
    "nvmlDeviceGetSupportedClocksEventReasons": (),
    "nvmlDeviceGetUtilizationRates": (),
    "nvmlDeviceGetFieldValues": (FIELDS,),
    "nvmlDeviceGetComputeRunningProcesses": (),
    "nvmlDeviceGetProcessUtilization": (0,),
    "nvmlDeviceGetPerformanceState": (),
    "nvmlDeviceGetTotalEnergyConsumption": (),
}


def our_module() -> Any:
    """The NVML module of battery; by its path on a bare machine, where battery's own requirements are missing."""
    sys.path.insert(0, str(ROOT))
    try:
        from battery.bench.sensors import nvidia
    except ModuleNotFoundError:
        for name in ("told", "nvidia"):
            full = f"battery.bench.sensors.{name}"
            path = ROOT / "battery" / "bench" / "sensors" / f"{name}.py"
            spec = importlib.util.spec_from_file_location(full, path)
            assert spec and spec.loader
            module = importlib.util.module_from_spec(spec)
            sys.modules[full] = module
            spec.loader.exec_module(module)
        nvidia = sys.modules["battery.bench.sensors.nvidia"]
    return nvidia


def plain(value: Any) -> Any:
    """A ctypes answer as JSON; fields as [id, type, status, value], as the fixtures have them."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if hasattr(value, "fieldId"):
        kinds = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
        kind = kinds[value.valueType] if value.valueType < len(kinds) else "ullVal"
        return [value.fieldId, value.valueType, value.nvmlReturn, getattr(value.value, kind)]
    names = [name for name, *_ in getattr(value, "_fields_", ())] or list(
        getattr(value, "__dict__", ())
    )
    if names:
        return {name: plain(getattr(value, name)) for name in names}
    if hasattr(value, "__len__") and not isinstance(value, str):
        return [plain(one) for one in value]
    return value


def asked(nvml: Any, device: Any, name: str, *args: Any) -> Any:
    """One call's answer, or its error in words."""
    try:
        return plain(getattr(nvml, name)(device, *args))
    except (nvml.NVMLError, AttributeError, OSError) as none:
        return {"error": str(none)}


def raw(nvml: Any, device: Any, index: int) -> dict[str, Any]:
    """All raw answers of one device; no uuid, which would name the board."""
    found = {name: asked(nvml, device, name, *args) for name, args in PLAIN.items()}
    for policy in POLICIES:
        found[f"nvmlDeviceGetViolationStatus({policy})"] = asked(
            nvml, device, "nvmlDeviceGetViolationStatus", policy
        )
    return {"nvmlDeviceGetUUID": f"GPU-{index:08d}", **found}


class Load(threading.Thread):
    """A matmul over and over, where torch finds the GPU; `why` says why not."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.end = threading.Event()
        self.why = ""

    def run(self) -> None:
        """Multiply until told to end."""
        try:
            import torch
        except ImportError:
            self.why = "no torch"
            return
        if not torch.cuda.is_available():
            self.why = "torch finds no GPU"
            return
        a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        while not self.end.is_set():
            for _ in range(20):
                b = a @ a
            torch.cuda.synchronize()
        del b


def main() -> None:
    """Look twice a second, idle and then under load."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    nvidia = our_module()
    ours = nvidia.Nvml()
    if ours.why:
        print(json.dumps({"why": ours.why}))
        return
    import pynvml

    devices = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    looks, load, start = [], Load(), time.perf_counter()
    while (at := time.perf_counter() - start) < seconds:
        if at > seconds / 2 and not load.is_alive() and not load.why:
            load.start()
        began, spent = time.perf_counter(), time.process_time()
        read = ours.read([os.getpid()], False)
        counters = ours.counters()
        cost = {"s": time.perf_counter() - began, "processor_s": time.process_time() - spent}
        beside = [raw(pynvml, device, i) for i, device in enumerate(devices)]
        looks.append(
            {"at_s": round(at, 3), "ours": read, "counters": counters, "cost": cost, "raw": beside}
        )
        time.sleep(0.5)
    load.end.set()
    namespace = Path("/proc/self/ns/pid")
    print(
        json.dumps(
            {
                "driver": plain(pynvml.nvmlSystemGetDriverVersion()),
                "nvml": plain(pynvml.nvmlSystemGetNVMLVersion()),
                "load": load.why or "matmul 8192 bf16 in the second half",
                "pid_namespace": namespace.readlink().name if namespace.is_symlink() else None,
                "own_pid": os.getpid(),
                "devices": looks[-1]["raw"],
                "idle": looks[0]["raw"],
                "looks": looks,
            }
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()
