"""What OpenVINO says about a model: its ends, its kernels, the properties in force.

OpenVINO knows inputs and outputs by several names at once and drops their quantisation;
the file itself (where it is TFLite or ONNX) supplies both.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgeperf.backends.onnx_graph import read_onnx
from edgeperf.backends.tflite_graph import read_tflite
from edgeperf.datasets.tensors import TensorSpec

#: Properties read back after compilation, whatever was asked.
READ_BACK = (
    "INFERENCE_PRECISION_HINT",
    "INFERENCE_NUM_THREADS",
    "NUM_STREAMS",
    "PERFORMANCE_HINT",
    "EXECUTION_MODE_HINT",
    "ENABLE_CPU_PINNING",
    "ENABLE_HYPER_THREADING",
    "SCHEDULING_CORE_TYPE",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE",
)

#: Layers of a compiled model that do the arithmetic, and how OpenVINO's types are called here.
_ARITHMETIC = frozenset({
    "Convolution", "Deconvolution", "FullyConnected", "MatMul", "RNNCell", "RNNSeq",
    "LSTMCell", "LSTMSequence", "GRUCell", "GRUSequence", "ScaledDotProductAttention",
})  # fmt: skip
_PRECISIONS = {"i8": "int8", "u8": "int8", "f32": "f32", "f16": "f16", "bf16": "bf16"}

_DTYPES = {
    "f32": "float32", "f16": "float16", "f64": "float64", "bf16": "bfloat16", "boolean": "bool",
    "i8": "int8", "u8": "uint8", "i16": "int16", "u16": "uint16", "i32": "int32",
    "u32": "uint32", "i64": "int64", "u64": "uint64",
}  # fmt: skip


def described(model: Path, form: str) -> tuple[Sequence[TensorSpec], Sequence[TensorSpec]]:
    """Return inputs and outputs as the file has them; nothing for IR, which says no more."""
    if form == ".xml":
        return (), ()
    graph = read_tflite(model) if form == ".tflite" else read_onnx(model)
    return graph.inputs, graph.outputs


def port_specs(ports: Sequence[Any], said: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """Return how OpenVINO sees a model's ends, under the names that the file gives them."""
    known = {spec.name: spec for spec in said}
    specs = []
    for place, port in enumerate(ports):
        names = sorted(port.get_names())
        own = next((known[name] for name in names if name in known), None)
        kind = port.get_element_type().get_type_name()
        axes = port.get_partial_shape()
        specs.append(
            TensorSpec(
                name=own.name if own else next(iter(names), f"tensor_{place}"),
                shape=tuple(axis.get_length() if axis.is_static else -1 for axis in axes),
                dtype=_DTYPES.get(kind, kind),
                quantisation=own.quantisation if own else None,
            )
        )
    return tuple(specs)


def arithmetic(compiled: Any) -> Counter[str]:
    """Count a compiled model's arithmetic layers by the precision of their kernels."""
    counts: Counter[str] = Counter()
    for layer in compiled.get_runtime_model().get_ops():
        facts = layer.get_rt_info()
        if "layerType" in facts and facts["layerType"].astype(str) in _ARITHMETIC:
            kernel = facts["primitiveType"].astype(str)
            counts[kernel_precision(kernel, facts["runtimePrecision"].astype(str))] += 1
    return counts


def kernel_precision(kernel: str, declared: str) -> str:
    """Return how a layer computes: the end of its kernel's name, ``brgconv_avx512_1x1_I8``.

    Args:
        kernel: Its ``primitiveType``.
        declared: Its ``runtimePrecision``, the second choice: where weights are narrower
            than the arithmetic, it is that of the weights.
    """
    end = kernel.rpartition("_")[2].lower()
    kind = end if end in _PRECISIONS else declared
    return _PRECISIONS.get(kind, kind)


def property_text(compiled: Any, name: str) -> str:
    """Return a property of a compiled model as text; empty where the device has none."""
    try:
        value = compiled.get_property(name)
    except RuntimeError:
        return ""
    if hasattr(value, "get_type_name"):
        return str(value.get_type_name())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(getattr(value, "name", value))
