"""Fifty devices with attributes and capacity of every type, as drivers publish them and as no driver should."""

from __future__ import annotations

from typing import Any, Final

from webhook.expressions.selectors.selector import SelectedDevice

JSON = Any


def _device(driver: str, attributes: JSON, capacity: JSON = None, *, multiple: bool | None = None) -> dict[str, JSON]:
    device = {"driver": driver, "attributes": attributes}
    device["capacity"] = {name: {"value": value} for name, value in (capacity or {}).items()}
    if multiple is not None:
        device["allowMultipleAllocations"] = multiple
    return device


def _example(**attributes: JSON) -> dict[str, JSON]:
    """A device of dra.example.com with an attribute of each type; None leaves one out."""
    usual = {
        "int": {"int": 1},
        "bool": {"bool": True},
        "string": {"string": "fish"},
        "version": {"version": "1.0.0"},
        "name": {"string": "fish"},
        "names": {"strings": ["fish", "bird"]},
        "ids": {"ints": [1, 2]},
        "versions": {"versions": ["1.0.0", "2.0.0"]},
        "services": {"string": "some_example_value"},
        "a": {"bool": True},
        "b": {"bool": True},
        "c": {"bool": True},
    }
    return {name: value for name, value in {**usual, **attributes}.items() if value is not None}


_MIB: Final = {"memory": "1Mi"}


def _gpu(number: int, product: str, architecture: str, memory: str, processors: int) -> dict[str, JSON]:
    return _device(
        "gpu.nvidia.com",
        {
            "type": {"string": "gpu"},
            "uuid": {"string": f"GPU-00000000-0000-0000-0000-00000000000{number}"},
            "index": {"int": number},
            "brand": {"string": "Nvidia"},
            "productName": {"string": product},
            "architecture": {"string": architecture},
            "driverVersion": {"version": f"5{number}0.54.15"},
            "cudaComputeCapability": {"version": f"{6 + number}.0.0"},
            "resource.kubernetes.io/pciBusID": {"string": f"0000:0{number}:00.0"},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
            "resource.kubernetes.io/numaNode": {"int": number % 2},
        },
        {"memory": memory, "multiprocessors": str(processors)},
    )


def _mig(profile: str, memory: str, processors: int) -> dict[str, JSON]:
    attributes = {"type": {"string": "mig"}, "profile": {"string": profile}, "index": {"int": 0}}
    return _device("gpu.nvidia.com", attributes, {"memory": memory, "multiprocessors": str(processors)})


DEVICES: Final = (
    # of public drivers
    _gpu(0, "NVIDIA A100-SXM4-40GB", "Ampere", "40Gi", 108),
    _gpu(1, "NVIDIA H100 80GB HBM3", "Hopper", "81559Mi", 132),
    _gpu(2, "NVIDIA GeForce RTX 5090", "Blackwell", "32Gi", 170),
    _gpu(3, "Tesla T4", "Turing", "16Gi", 40),
    _mig("1g.5gb", "4864Mi", 14),
    _mig("2g.10gb", "9856Mi", 28),
    _mig("3g.20gb", "19968Mi", 42),
    _device("gpu.nvidia.com", {"type": {"string": "vfio"}}, multiple=False),
    _device("compute-domain.nvidia.com", {"type": {"string": "channel"}, "id": {"int": 0}}),
    _device("compute-domain.nvidia.com", {"type": {"string": "daemon"}, "id": {"int": 1}}),
    _device(
        "gpu.intel.com",
        {
            "model": {"string": "0x56c0"},
            "family": {"string": "Flex"},
            "sriov": {"bool": True},
            "driver": {"string": "i915"},
        },
        {"memory": "16Gi", "millicores": "1k"},
    ),
    _device(
        "gpu.intel.com",
        {"family": {"string": "Arc B"}, "driver": {"string": "vfio-pci"}, "pciId": {"string": "0xe223"}},
    ),
    _device("gaudi.intel.com", {"model": {"string": "Gaudi2"}, "healthy": {"bool": True}}),
    _device("qat.intel.com", {"services": {"string": "sym;dc"}}),
    _device("qat.intel.com", {"services": {"string": "asym"}}),
    _device(
        "gpu.amd.com", {"type": {"string": "amdgpu"}, "partitionProfile": {"string": "spx_nps1"}}, {"memory": "192Gi"}
    ),
    _device("gpu.amd.com", {"type": {"string": "amdgpu-partition"}}, {"memory": "24Gi"}),
    _device(
        "tpu.google.com", {"accelerator": {"string": "tpu-v6e-slice"}, "tpuGen": {"string": "v5e"}, "index": {"int": 3}}
    ),
    _device("neuron.aws.com", {"instanceType": {"string": "trn2.48xlarge"}}),
    _device(
        "dra.cpu",
        {
            "numaNodeID": {"int": 0},
            "cpuID": {"int": 2},
            "coreType": {"string": "p-core"},
            "smtEnabled": {"bool": False},
        },
        {"cpu": "32"},
        multiple=True,
    ),
    _device(
        "dra.net",
        {
            "ifName": {"string": "eth1"},
            "rdma": {"bool": True},
            "mtu": {"int": 9000},
            "ipv4": {"string": "10.0.3.4/24"},
            "pciAddress": {"string": "0000:00:04.0"},
        },
    ),
    _device("dra.net", {"ifName": {"string": "dranet0"}, "rdma": {"bool": False}, "alias": {"string": "data"}}),
    _device(
        "sriovnetwork.k8snetworkplumbingwg.io",
        {"resourceName": {"string": "port2-vfs"}, "k8s.cni.cncf.io/resourceName": {"string": "sriov_nic_1"}},
    ),
    _device(
        "gpu.example.com",
        {
            "index": {"int": 0},
            "model": {"string": "LATEST-GPU-MODEL"},
            "uuid": {"string": "gpu-18db0e85-99e9-c746-8531-ffeb86328b39"},
            "driverVersion": {"version": "1.0.0"},
            "type": {"string": "gpu"},
            "vendor": {"string": "example"},
            "healthy": {"bool": True},
            "degraded": {"bool": False},
        },
        {"memory": "80Gi"},
    ),
    _device("resource-driver.example.com", {"color": {"string": "black"}, "size": {"string": "large"}}),
    _device("llmfit.ai", {"memoryBandwidthGBs": {"int": 900}}, {"memory": "24Gi"}),
    # of dra.example.com, with all types
    _device("dra.example.com", _example(), _MIB),
    _device("dra.example.com", _example(), _MIB, multiple=True),
    _device("dra.example.com", _example(), _MIB, multiple=False),
    _device("dra.example.com", _example(), {"memory": "0"}),
    _device("dra.example.com", _example(), {"memory": "-1Ki"}),
    _device("dra.example.com", _example(), {"memory": "1500m", "counters": "3"}),
    _device("dra.example.com", _example(), {"memory": "1e3", "other.example.com/memory": "5"}),
    _device("dra.example.com", _example(), {}),
    _device("dra.example.com", {}, _MIB),
    _device("dra.example.com", _example(int={"int": 7}, string={"string": ""}, bool={"bool": False}), _MIB),
    _device("dra.example.com", _example(int={"int": -5}, string={"string": "éß🐟"}), _MIB),
    _device("dra.example.com", _example(int={"int": 2**63 - 1}, string={"string": "."}), _MIB),
    _device("dra.example.com", _example(int={"string": "1"}, string={"int": 5}, bool={"string": "true"}), _MIB),
    _device("dra.example.com", _example(int={"version": "1.0.0"}, version={"string": "1.0.0"}), _MIB),
    _device("dra.example.com", _example(version={"version": "2.1.0-alpha.1+x"}, name={"bool": True}), _MIB),
    _device("dra.example.com", _example(version={"int": 3}, name={"int": 3}, string={"string": "["}), _MIB),
    _device("dra.example.com", _example(names={"ints": [3, 1]}, ids={"strings": ["a"]}), _MIB),
    _device("dra.example.com", _example(names={"bools": [True, False]}, ids={"ints": [5]}), _MIB),
    _device(
        "dra.example.com", _example(names={"versions": ["1.0.0"]}, versions={"versions": ["3.0.0", "2.0.0"]}), _MIB
    ),
    _device("dra.example.com", _example(names={"string": "fish"}, ids={"int": 1}, name={"strings": ["fish"]}), _MIB),
    _device("dra.example.com", _example(names=None, ids=None, string=None, int=None), _MIB),
    _device("other.example.com", {"name": {"bool": True}, "dra.example.com/name": {"string": "fish"}}, _MIB),
    _device("", {"dra.example.com/int": {"int": 1}, "ext.example.com/family": {"string": "b"}}),
    _device("cxl.example.com", {"numa": {"int": 1}, "missing": {"string": "there"}}, {"bandwidth": "32G"}),
)


def selected(device: dict[str, JSON]) -> SelectedDevice:
    """One of them, as a selector sees it."""
    multiple = device.get("allowMultipleAllocations") is True
    return SelectedDevice(
        device["driver"], device["attributes"], device["capacity"], allow_multiple_allocations=multiple
    )
