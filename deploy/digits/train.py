"""Train the bundled ``digits`` model and write its files into ``datasets/bundled``.

A small convolutional network on scikit-learn's handwritten digits: the one model that
edgeperf ships, so that its first command measures something real without a network.
One training run, fixed seeds, a fixed number of epochs: the test split is read once, at
the end, to be written out and scored; nothing was chosen by it.

The int8 ``.onnx`` is not quantised a second time: it is written from the numbers inside
the int8 ``.tflite`` (weights, scales, zero points), so the two are one model.

The committed files were made with Python 3.11.7, TensorFlow 2.21.0, Keras 3.15.1,
ONNX 1.23.2, scikit-learn 1.9.1 and NumPy 2.4.6 on x86-64. Other versions, or another
processor, give other weights. Run it as ``python deploy/digits/train.py [FOLDER]``.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import onnx
import tensorflow as tf
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SEED = 20261129
TEST_SAMPLES = 360
EPOCHS = 60
BATCH = 32
#: The brightest pixel. The float models take ``pixel / 16``.
WHITE = 16
HEIGHT, WIDTH = 8, 8
CLASSES = 10
#: ONNX Runtime 1.17, the oldest that edgeperf supports, reads these.
OPSET, IR_VERSION = 13, 8

Array = NDArray[Any]
BUNDLED = Path(__file__).resolve().parents[2] / "datasets" / "bundled"


def split() -> tuple[Array, Array, Array, Array]:
    """Return train images, test images, train labels, test labels; images are uint8 NHWC."""
    digits = load_digits()
    images = digits.images.astype(np.uint8)[..., np.newaxis]
    labels = digits.target.astype(np.uint8)
    train, test, train_labels, test_labels = train_test_split(
        images, labels, test_size=TEST_SAMPLES, stratify=labels, random_state=SEED
    )
    return train, test, train_labels, test_labels


def as_input(images: Array) -> Array:
    """Return uint8 images as the float models take them."""
    return (images / WHITE).astype(np.float32)


def network(batch: int | None) -> keras.Model:
    """Return the untrained network for a fixed or a free batch."""
    return keras.Sequential(
        [
            keras.Input((HEIGHT, WIDTH, 1), batch_size=batch, name="image"),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu", name="conv1"),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu", name="conv2"),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu", name="conv3"),
            keras.layers.Conv2D(64, 3, padding="same", activation="relu", name="conv4"),
            keras.layers.GlobalAveragePooling2D(name="pool"),
            keras.layers.Dense(CLASSES, name="dense"),
            keras.layers.Softmax(name="scores"),
        ]
    )


def train(images: Array, labels: Array) -> keras.Model:
    """Train the network on uint8 *images*."""
    keras.utils.set_random_seed(SEED)
    tf.config.experimental.enable_op_determinism()
    model = network(None)
    steps = EPOCHS * -(-len(images) // BATCH)
    rate = keras.optimizers.schedules.CosineDecay(2e-3, steps)
    model.compile(
        keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    model.fit(as_input(images), labels, batch_size=BATCH, epochs=EPOCHS, verbose=2)
    return model


def to_tflite(model: keras.Model, calibration: Array | None) -> bytes:
    """Convert *model*, batch of one; with *calibration* images, to int8 throughout."""
    one = network(1)
    one.set_weights(model.get_weights())
    converter = tf.lite.TFLiteConverter.from_keras_model(one)
    if calibration is not None:

        def samples() -> Iterator[list[Array]]:
            for image in as_input(calibration):
                yield [image[np.newaxis]]

        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = samples
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = tf.int8
        converter.inference_output_type = tf.int8
    return bytes(converter.convert())


class Graph:
    """An ONNX graph under construction: a chain of nodes and their constants."""

    def __init__(self, source: str) -> None:
        self.tip = source
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def constant(self, name: str, value: Array) -> str:
        """Add a constant and return its name."""
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, operator: str, *inputs: str, name: str, **attributes: Any) -> str:
        """Add a node beside the chain and return the name of its output."""
        self._nodes.append(helper.make_node(operator, [*inputs], [name], name=name, **attributes))
        return name

    def then(self, operator: str, *inputs: str, name: str, **attributes: Any) -> None:
        """Add a node at the end of the chain, which is its first input."""
        self.tip = self.node(operator, self.tip, *inputs, name=name, **attributes)

    def model(self, element: int, source: str) -> onnx.ModelProto:
        """Return the checked model; its input and output are of type *element*."""
        graph = helper.make_graph(
            self._nodes,
            "digits",
            [helper.make_tensor_value_info(source, element, [1, HEIGHT, WIDTH, 1])],
            [helper.make_tensor_value_info(self.tip, element, [1, CLASSES])],
            self._constants,
        )
        opset = helper.make_opsetid("", OPSET)
        model = helper.make_model(graph, opset_imports=[opset], producer_name="edgeperf")
        model.ir_version = IR_VERSION
        onnx.checker.check_model(model, full_check=True)
        return model


CONVOLUTIONS = ("conv1", "conv2", "conv3", "conv4")
#: TensorFlow's "same" padding at stride 1.
CONVOLUTION: dict[str, list[int]] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}


def float_onnx(model: keras.Model) -> onnx.ModelProto:
    """Write the trained weights as a float ONNX model with the same NHWC input."""
    graph = Graph("image")
    graph.then("Transpose", name="nchw", perm=[0, 3, 1, 2])
    for layer in CONVOLUTIONS:
        kernel, bias = model.get_layer(layer).get_weights()
        weight = graph.constant(f"{layer}_w", kernel.transpose(3, 2, 0, 1))
        offset = graph.constant(f"{layer}_b", bias)
        graph.then("Conv", weight, offset, name=layer, **CONVOLUTION)
        graph.then("Relu", name=f"{layer}_relu")
    graph.then("GlobalAveragePool", name="pool")
    graph.then("Flatten", name="flat")
    kernel, bias = model.get_layer("dense").get_weights()
    weight, offset = graph.constant("dense_w", kernel), graph.constant("dense_b", bias)
    graph.then("Gemm", weight, offset, name="dense")
    graph.then("Softmax", name="scores", axis=-1)
    return graph.model(TensorProto.FLOAT, "image")


class Quantised:
    """Tensors of an int8 ``.tflite``, in the order in which its operators use them."""

    def __init__(self, content: bytes) -> None:
        # Without this, constants may be packed away for the delegate and read as garbage.
        self._interpreter = tf.lite.Interpreter(
            model_content=content,
            experimental_op_resolver_type=tf.lite.experimental.OpResolverType.BUILTIN_REF,
            experimental_preserve_all_tensors=True,
        )
        self._interpreter.allocate_tensors()
        self._tensors = {t["index"]: t for t in self._interpreter.get_tensor_details()}
        self.operators = self._interpreter._get_ops_details()  # noqa: SLF001 - no public door

    def value(self, index: int) -> Array:
        """Return a constant."""
        return np.array(self._interpreter.get_tensor(index))

    def scale(self, index: int) -> tuple[Array, Array]:
        """Return scales and zero points; one each, or one per channel."""
        parameters = self._tensors[index]["quantization_parameters"]
        return parameters["scales"].astype(np.float32), parameters["zero_points"]


def _quantised_constant(graph: Graph, name: str, value: Array, scales: Array) -> str:
    """Add a constant behind a ``DequantizeLinear``, one scale per row when there are several."""
    zero = np.zeros(scales.shape, value.dtype)
    if scales.size == 1:
        scales, zero = scales.reshape(()), zero.reshape(())
    parts = (
        graph.constant(f"{name}_q", value),
        graph.constant(f"{name}_scale", scales),
        graph.constant(f"{name}_zero", zero),
    )
    return graph.node("DequantizeLinear", *parts, name=name, axis=0)


def _step(graph: Graph, name: str, source: Quantised, index: int) -> tuple[str, str]:
    """Add the scale and zero point of an activation; return their names."""
    scale, zero = source.scale(index)
    return (
        graph.constant(f"{name}_scale", scale.reshape(())),
        graph.constant(f"{name}_zero", zero.astype(np.int8).reshape(())),
    )


def int8_onnx(content: bytes) -> onnx.ModelProto:
    """Write the int8 ``.tflite`` as an ONNX model in QDQ form, with the same int8 input."""
    source = Quantised(content)
    graph = Graph("image_int8")
    first = source.operators[0]["inputs"][0]
    graph.then("DequantizeLinear", *_step(graph, "image", source, first), name="image")
    graph.then("Transpose", name="nchw", perm=[0, 3, 1, 2])
    for place, operator in enumerate(source.operators):
        kind, name = operator["op_name"], f"{operator['op_name'].lower()}_{place}"
        if kind in ("CONV_2D", "FULLY_CONNECTED"):
            weight, bias = operator["inputs"][1:3]
            kernel = source.value(weight)  # OHWI or OI
            kernel = np.moveaxis(kernel, -1, 1) if kernel.ndim > 2 else kernel  # noqa: PLR2004 - a matrix
            scales, _ = source.scale(weight)
            offset_scales, _ = source.scale(bias)
            constants = (
                _quantised_constant(graph, f"{name}_w", kernel, scales),
                _quantised_constant(graph, f"{name}_b", source.value(bias), offset_scales),
            )
            if kind == "CONV_2D":
                graph.then("Conv", *constants, name=name, **CONVOLUTION)
                graph.then("Relu", name=f"{name}_relu")
            else:
                graph.then("Gemm", *constants, name=name, transB=1)
        elif kind == "MEAN":
            graph.then("GlobalAveragePool", name=name)
            graph.then("Flatten", name=f"{name}_flat")
        elif kind == "SOFTMAX":
            graph.then("Softmax", name=name, axis=-1)
        else:
            sys.exit(f"the .tflite holds an operator that int8_onnx cannot write: {kind}")
        step = _step(graph, name, source, operator["outputs"][0])
        graph.then("QuantizeLinear", *step, name=f"{name}_int8")
        if kind != "SOFTMAX":
            graph.then("DequantizeLinear", *step, name=f"{name}_out")
    return graph.model(TensorProto.INT8, "image_int8")


def main() -> None:
    """Train, export, and say how well the held-out digits are read."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else BUNDLED
    folder.mkdir(parents=True, exist_ok=True)
    images, test, labels, test_labels = split()
    model = train(images, labels)
    _, accuracy = model.evaluate(as_input(test), test_labels, verbose=0)
    int8 = to_tflite(model, images)
    files = {
        "digits_f32.tflite": to_tflite(model, None),
        "digits_int8.tflite": int8,
        "digits_f32.onnx": float_onnx(model).SerializeToString(),
        "digits_int8.onnx": int8_onnx(int8).SerializeToString(),
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    np.savez_compressed(folder / "digits_test.npz", images=test, labels=test_labels)
    sys.stdout.write(f"held-out accuracy {accuracy:.4f} of {len(test)}; files in {folder}\n")


if __name__ == "__main__":
    main()
