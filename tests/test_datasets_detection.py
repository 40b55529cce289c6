"""Detection: boxes read from every kind of output, NMS, annotations, and mean average precision."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeperf.backends import open_backend
from edgeperf.backends.base import SessionOptions
from edgeperf.datasets import open_task
from edgeperf.datasets.base import DatasetError, SampleLibrary
from edgeperf.datasets.detection.boxes import as_corners, keep_strongest
from edgeperf.datasets.detection.heads import make_head
from edgeperf.datasets.detection.library import Detection
from edgeperf.datasets.metrics.detection import (
    STATS,
    Truth,
    _Matches,
    mean_average_precision,
)
from edgeperf.datasets.own.recipes import OutputRecipe
from edgeperf.datasets.tensors import Quantisation, TensorSpec

PIL = pytest.importorskip("PIL.Image")
pytest.importorskip("pycocotools")


def tensor(*shape: int, name: str = "y", dtype: str = "float32", scale: float = 0) -> TensorSpec:
    """Return a tensor's description."""
    quantisation = Quantisation(scale=scale, zero_point=0) if scale else None
    return TensorSpec(name=name, shape=shape, dtype=dtype, quantisation=quantisation)


def test_box_formats() -> None:
    """One box, told in four ways."""
    told = {
        "yxyx": [2, 1, 6, 4],
        "xyxy": [1, 2, 4, 6],
        "xywh": [1, 2, 3, 4],
        "cxcywh": [2.5, 4, 3, 4],
    }
    for box_format, numbers in told.items():
        assert as_corners(np.array([numbers]), box_format).tolist() == [[2, 1, 6, 4]]


def _iou(first: NDArray[np.float32], second: NDArray[np.float32]) -> float:
    height = max(0, min(first[2], second[2]) - max(first[0], second[0]))
    width = max(0, min(first[3], second[3]) - max(first[1], second[1]))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (first, second)]
    return float(height * width / (sum(areas) - height * width))


_BOX = st.tuples(*[st.integers(0, 12)] * 2, *[st.integers(1, 8)] * 2)


@given(st.lists(st.tuples(_BOX, st.integers(0, 5), st.integers(0, 1)), max_size=14))
def test_nms_is_its_definition(rows: list[Any]) -> None:
    """Best first; a box falls if a stronger one of its class, which stays, covers it."""
    boxes = np.array([[y, x, y + h, x + w] for (y, x, h, w), _, _ in rows], np.float32)
    boxes = boxes.reshape(-1, 4)
    scores = np.array([score for _, score, _ in rows], np.float32)
    classes = np.array([kind for _, _, kind in rows], np.int64)
    expected: list[int] = []
    for place in sorted(range(len(rows)), key=lambda number: -scores[number]):
        rivals = [kept for kept in expected if classes[kept] == classes[place]]
        if all(_iou(boxes[kept], boxes[place]) <= 0.5 for kept in rivals):
            expected.append(place)
    assert keep_strongest(boxes, scores, classes, 0.5, 100).tolist() == expected
    assert keep_strongest(boxes, scores, classes, 0.5, 3).tolist() == expected[:3]


def read(recipe: OutputRecipe, specs: list[TensorSpec], *values: Any) -> list[list[float]]:
    """Return what a head reads: corners, score and class of each box, for an input of 32 x 64."""
    arrays = [
        np.array(value, spec.dtype).reshape(spec.shape)
        for spec, value in zip(specs, values, strict=True)
    ]
    found = make_head(recipe, specs, (32, 64))(arrays)
    return [
        [*map(float, box), round(float(score), 4), int(kind)]
        for box, score, kind in zip(found.boxes, found.scores, found.classes, strict=True)
    ]


SSD = [
    tensor(1, 2, 4, name="a"),
    tensor(1, 2, name="a:1"),
    tensor(1, 2, name="a:2"),
    tensor(1, name="a:3"),
]


def test_ssd() -> None:
    """Boxes, classes, scores and a count, in TensorFlow's order or by their names."""
    recipe = OutputRecipe(read="ssd", box_format="yxyx")
    boxes = [[0, 0, 0.5, 0.25], [9, 9, 9, 9]]
    assert read(recipe, SSD, boxes, [7, 3], [0.5, 0.9], 1) == [[0, 0, 16, 16, 0.5, 7]]
    named = [
        tensor(2, name="labels", dtype="int64"),
        tensor(2, name="scores"),
        tensor(2, 4, name="bboxes"),
    ]
    pixels = OutputRecipe(read="ssd", box_unit="pixels")
    rows = read(pixels, named, [3, 1], [0.25, 0.5], [[1, 2, 3, 4], [5, 6, 7, 8]])
    assert rows == [[2, 1, 4, 3, 0.25, 3], [6, 5, 8, 7, 0.5, 1]]
    with pytest.raises(DatasetError, match=r"read = 'ssd' needs boxes and .*'z'"):
        make_head(recipe, [tensor(1, 9, name="z")], (32, 64))
    chosen = OutputRecipe(read="ssd", outputs={"boxes": "q"})
    with pytest.raises(DatasetError, match=r"outputs boxes = 'q': the model has 'a', 'a:1'"):
        make_head(chosen, SSD, (32, 64))


def test_boxes_with_rows_of_scores() -> None:
    """Before NMS: each box with its best class, or with every class; either order of axes."""
    boxes, scores = [[0, 0, 1, 1], [0, 0, 0.5, 0.5]], [[0.1, 0.7, 0.6], [0.9, 0.2, 0.3]]
    recipe = OutputRecipe(read="boxes")
    specs = [tensor(1, 2, 4, name="boxes"), tensor(1, 2, 3, name="scores")]
    best = [[0, 0, 32, 64, 0.7, 1], [0, 0, 16, 32, 0.9, 0]]
    assert read(recipe, specs, boxes, scores) == best
    turned = [tensor(1, 3, 2, name="scores"), specs[0]]
    assert read(recipe, turned, np.array(scores).T, boxes) == best
    every = OutputRecipe(read="boxes", multi_label=True, score_at_least=0.5, background=True)
    assert [row[4:] for row in read(every, specs, boxes, scores)] == [[0.7, 0], [0.6, 1]]


def test_yolo() -> None:
    """With objectness in rows, without it in columns, and rows that went through NMS."""
    recipe = OutputRecipe(read="yolo", box_format="cxcywh", box_unit="pixels")
    row = [10, 20, 4, 8, 0.5, 0.2, 0.8]
    filler = [[0] * 7] * 9
    assert read(recipe, [tensor(1, 10, 7)], [row, *filler])[0] == [16, 8, 24, 12, 0.4, 1]
    columns = np.array([[*row[:4], *row[5:]], *[[0] * 6] * 9]).T
    assert read(recipe, [tensor(1, 6, 10)], columns)[0] == [16, 8, 24, 12, 0.8, 1]
    rows = OutputRecipe(read="rows", box_unit="pixels")
    assert read(rows, [tensor(1, 1, 6)], [1, 2, 3, 4, 0.5, 6]) == [[2, 1, 4, 3, 0.5, 6]]
    quantised = [tensor(1, 1, 6, dtype="uint8", scale=0.5)]
    assert read(rows, quantised, [2, 4, 6, 8, 1, 12]) == [[2, 1, 4, 3, 0.5, 6]]
    with pytest.raises(DatasetError, match=r'"rows" takes \[1, n, 6\]; the model has'):
        make_head(rows, [tensor(1, 1, 7)], (32, 64))
    with pytest.raises(DatasetError, match="takes one output of 3 axes"):
        make_head(recipe, [tensor(1, 7)], (32, 64))


def test_yolox() -> None:
    """Places count from their cell, sizes are logarithms, in strides of each level."""
    rows = np.zeros((32 + 8 + 2, 7), np.float32)
    rows[9] = 0.5, 0.25, 0, np.log(2), 0.5, 0.1, 0.9
    rows[41] = 0, 0, np.log(0.5), 0, 1, 1, 0
    recipe = OutputRecipe(read="yolox")
    found = read(recipe, [tensor(1, 42, 7)], rows)
    # Cell 9 of stride 8 is column 1, row 1: centre (12, 10), size 8 x 16.
    assert found[9] == [2, 8, 18, 16, 0.45, 1]
    # The last one is column 1 of stride 32.
    assert found[41] == [-16, 24, 16, 40, 1.0, 0]
    with pytest.raises(DatasetError, match="'yolox' takes 42 rows for an input of 32x64"):
        make_head(recipe, [tensor(1, 40, 7)], (32, 64))


def test_fastestdet() -> None:
    """One map of cells; tanh moves the centre, the logistic function gives the size."""
    cells = np.zeros((7, 2, 4), np.float32)
    cells[0, 1, 2], cells[5:, 1, 2] = 1.0, (0.2, 1.0)
    found = read(OutputRecipe(read="fastestdet"), [tensor(1, 7, 2, 4)], cells)
    assert found[6] == [8, 16, 24, 48, 1.0, 1]


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    """Return a folder in COCO's layout: two pictures, the second without a box."""
    (tmp_path / "val2017").mkdir()
    for name in ("a.png", "b.png"):
        PIL.new("RGB", (40, 20)).save(tmp_path / "val2017" / name)
    write(tmp_path, annotations())
    return tmp_path


def annotations() -> dict[str, Any]:
    """Return two images, two categories and a box of 10 x 8 at (4, 2)."""
    return {
        "images": [
            {"id": 5, "file_name": "a.png", "width": 40, "height": 20},
            {"id": 9, "file_name": "b.png", "width": 40, "height": 20},
        ],
        "categories": [{"id": 3, "name": "cat"}, {"id": 7, "name": "dog"}],
        "annotations": [{"id": 1, "image_id": 5, "category_id": 7, "bbox": [4, 2, 10, 8],
                         "area": 80, "iscrowd": 0}],
    }  # fmt: skip


def write(folder: Path, content: Any) -> None:
    """Write the annotation file."""
    (folder / "annotations").mkdir(exist_ok=True)
    (folder / "annotations" / "instances_val2017.json").write_text(json.dumps(content))


ROWS = '[output]\nread = "rows"\nbox_unit = "pixels"\nmost = 4\n'


def open_rows(data: Path, text: str = "") -> SampleLibrary:
    """Open *data* for a model whose output is rows of box, score, class; input 40 x 80."""
    (data.parent / "rows.toml").write_text(text + ROWS)
    task = open_task(str(data.parent / "rows.toml"))
    assert task.timed_postprocessing
    return task.open([tensor(1, 40, 80, 3)], [tensor(1, 3, 6)], data=data)


def answered(library: SampleLibrary, *tables: Any) -> NDArray[np.float32]:
    """Return the predictions when the model gives each of *tables* for one image."""
    predictions = np.full((len(library), *library.prediction_shape), 7, np.float32)
    for index, table in enumerate(tables):
        rows = np.zeros((1, 3, 6), np.float32)
        rows[0, : len(table)] = np.reshape(table, (-1, 6))
        library.predict(index, [rows], predictions[index])
    return predictions


PERFECT = [[8, 4, 28, 20, 0.9, 1]]


def test_perfect_boxes_are_worth_1(coco: Path) -> None:
    """Boxes come back onto the photograph, classes become categories."""
    library = open_rows(coco, "[input]\n")
    assert len(library) == 2
    predictions = answered(library, PERFECT, [])
    box = predictions[0, 0].tolist()
    assert box == pytest.approx([2 / 20, 4 / 40, 10 / 20, 14 / 40, 0.9, 7])
    score = library.score(predictions)
    assert score.metric == "mAP"
    assert score.value == pytest.approx(1.0)
    assert score.intervals["mAP"][1] == pytest.approx(1.0)
    payload = np.zeros(library.payload_bytes, np.uint8)
    size = library.payload(1, predictions[0], payload)
    rows = payload[:size].view(np.float32).reshape(-1, 7)
    assert rows[0].tolist() == pytest.approx([1, *box])
    assert size == 28 * 3  # the zeros of an output without a count are detections too


def test_letterbox_is_undone(coco: Path) -> None:
    """Boxes found in a letterbox lie on the photograph afterwards."""
    (coco.parent / "l.toml").write_text('[input]\nresize = "letterbox"\n' + ROWS)
    task = open_task(str(coco.parent / "l.toml"))
    library = task.open([tensor(1, 80, 80, 3)], [tensor(1, 3, 6)], data=coco)
    predictions = answered(library, [[8, 24, 28, 40, 0.9, 1]], [])
    assert predictions[0, 0].tolist() == pytest.approx([2 / 20, 4 / 40, 10 / 20, 14 / 40, 0.9, 7])


def test_detections_that_are_none(coco: Path) -> None:
    """No detection at all is worth 0 and said; NaN is refused; strange classes are said."""
    library = open_rows(coco, "")
    nothing = np.zeros((2, 4, 6), np.float32)
    nothing[..., 5] = -1
    score = library.score(nothing)
    assert score.value == 0.0
    assert [remark.code for remark in score.remarks] == ["no-detections"]
    assert library.payload(0, nothing[0], np.zeros(library.payload_bytes, np.uint8)) == 0
    broken = answered(library, [[8, 4, 28, 20, np.nan, 1]], [])
    with pytest.raises(DatasetError, match="1 of 2 answers are not finite"):
        library.score(broken)
    strange = answered(library, [[8, 4, 28, 20, 0.9, 5]], [])
    codes = [remark.code for remark in library.score(strange).remarks]
    assert codes == ["strange-classes"]


def test_boxes_at_random_are_doubted(coco: Path) -> None:
    """Where nothing fits, a reader is told; where the best box fits, it is called right."""
    content, count = annotations(), 24
    picture, box = content["images"][0], content["annotations"][0]
    content["images"] = [{**picture, "id": number} for number in range(count)]
    content["annotations"] = [{**box, "id": n + 1, "image_id": n} for n in range(count)]
    write(coco, content)
    library = cast("Detection", open_rows(coco))
    elsewhere, other_class = [[28, 4, 38, 20, 0.9, 1]], [[8, 4, 28, 20, 0.9, 0]]
    off = answered(library, *[elsewhere, other_class] * 12)
    assert {remark.code: remark.doubt for remark in library.score(off).remarks}["chance"]
    good = answered(library, *[PERFECT] * count)
    assert "chance" not in {remark.code for remark in library.score(good).remarks}
    for found, right in ((off, False), (good, True)):
        shown = [library.shown(index, found[index]) for index in (0, 1)]
        assert [(one.right, one.label, one.given) for one in shown] == [(right, 1, int(right))] * 2


def test_class_numbers_and_names(coco: Path) -> None:
    """Classes are places, COCO's numbers, or names of the task file; others are refused."""
    by_id = open_rows(coco, "")
    assert answered(by_id, PERFECT, [])[0, 0, 5] == 7
    (coco.parent / "c.toml").write_text(
        'classes = ["dog", "cat"]\n' + ROWS.replace("most", "class_offset = 1\nmost")
    )
    task = open_task(str(coco.parent / "c.toml"))
    named = task.open([tensor(1, 40, 80, 3)], [tensor(1, 3, 6)], data=coco)
    assert answered(named, PERFECT, [])[0, 0, 5] == 8  # beyond the second: no category
    with pytest.raises(DatasetError, match=r"has no category 'owl', a class of the task"):
        open_rows(coco, 'classes = ["owl", "cat"]\n')
    (coco.parent / "y.toml").write_text('[output]\nread = "yolo"\n')
    with pytest.raises(DatasetError, match=r"the model tells 80 classes, and there are 2 cat"):
        open_task(str(coco.parent / "y.toml")).open(
            [tensor(1, 40, 80, 3)], [tensor(1, 84, 8400)], data=coco
        )


def _changed(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        content = annotations()
        change(content)
        write(folder, content)

    return make


BAD = [
    (_changed(lambda c: c.pop("images")), "not COCO's format: .*missing required field `images`"),
    (_changed(lambda c: c.update(images=[])), "lists no image"),
    (_changed(lambda c: c.update(annotations=[])), "holds no box: there is nothing to find"),
    (_changed(lambda c: c["images"][1].update(file_name="z.png")), "z.png: listed in .*1 of 2"),
    (
        _changed(lambda c: c["images"][0].update(file_name="z.png")),
        "image 'z.png' is in none of",
    ),
    (_changed(lambda c: c["images"][0].update(width=0)), "image 5 is 0x20"),
    (_changed(lambda c: c["images"][1].update(id=5)), "two images have the same id"),
    (_changed(lambda c: c["annotations"][0].update(image_id=1)), "annotation 1: image_id 1 is no"),
    (_changed(lambda c: c["annotations"][0].update(category_id=1)), "category_id 1 is no category"),
    (_changed(lambda c: c["annotations"][0].update(bbox=[1, 1, -1, 1])), "bbox is .*expected left"),
    (_changed(lambda c: c["annotations"][0].update(bbox=[1])), "not COCO's format: .*bbox"),
    (lambda folder: write(folder, [1]), "not COCO's format"),
    (lambda f: (f / "annotations" / "instances_val2017.json").unlink(), "holds no annotations"),
    (lambda f: (f / "annotations" / "instances_val2017.json").write_bytes(b"\xff{"), "not COCO's"),
]


@pytest.mark.parametrize(("make", "said"), BAD, ids=[said for _, said in BAD])
def test_bad_annotations_are_one_clear_line(
    coco: Path, make: Callable[[Path], Any], said: str
) -> None:
    """The message names the file and the entry."""
    make(coco)
    with pytest.raises(DatasetError, match=said) as caught:
        open_rows(coco)
    assert "\n" not in str(caught.value)
    with pytest.raises(DatasetError, match="does not exist; expected a COCO file"):
        open_rows(coco / "gone")


_FOUND = st.tuples(
    st.integers(1, 3), st.integers(1, 2), st.tuples(*[st.integers(0, 9)] * 2),
    st.integers(1, 4), st.integers(0, 20), st.booleans(),
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.lists(_FOUND, min_size=1, max_size=8), st.lists(_FOUND, max_size=12))
def test_average_precision_is_pycocotools(
    tmp_path_factory: pytest.TempPathFactory, boxes: list[Any], found: list[Any]
) -> None:
    """The metrics are those of pycocotools on files; the matches give the same once more."""
    images = [{"id": number, "width": 20, "height": 20} for number in (1, 2, 3)]
    categories = [{"id": number, "name": str(number)} for number in (1, 2)]
    truth = [
        {"id": place, "image_id": image, "category_id": kind, "bbox": [*corner, size, size],
         "area": size * size, "iscrowd": int(crowd)}
        for place, (image, kind, corner, size, _, crowd) in enumerate(boxes, start=1)
    ]  # fmt: skip
    given = [
        {"image_id": image, "category_id": kind, "bbox": [*corner, size, size], "score": score / 20}
        for image, kind, corner, size, score, _ in found
    ]
    metrics, _ = mean_average_precision(Truth(images, categories, truth), given)
    if not given:
        assert metrics["mAP"] == 0
        return
    folder = tmp_path_factory.mktemp("coco")
    file = {"images": images, "categories": categories, "annotations": truth}
    (folder / "truth.json").write_text(json.dumps(file))
    (folder / "found.json").write_text(json.dumps(given))
    evaluation = evaluate(folder)
    stats = dict(zip(STATS, evaluation.stats, strict=False))
    expected = {name: value for name, value in stats.items() if value >= 0}
    assert {name: metrics[name] for name in expected} == expected
    again = _Matches(evaluation).measure(np.ones(3, np.int64))
    assert again == pytest.approx(expected)


def evaluate(folder: Path) -> Any:
    """Return pycocotools' evaluation of two files, apart from our code."""
    coco, cocoeval = map(pytest.importorskip, ("pycocotools.coco", "pycocotools.cocoeval"))
    right = coco.COCO(str(folder / "truth.json"))
    evaluation = cocoeval.COCOeval(right, right.loadRes(str(folder / "found.json")), "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    return evaluation


def _answers(task: str, model: Path, backend: str, data: Path) -> float:
    session = open_backend(backend).load(model, SessionOptions())
    library = open_task(task).open(session.inputs, session.outputs, data=data)
    blocks = [np.zeros((1, *spec.sample_shape), spec.dtype) for spec in session.inputs]
    session.bind(blocks)
    predictions = np.zeros((len(library), *library.prediction_shape), np.float32)
    for index in range(len(library)):
        library.write(index, [block[0] for block in blocks])
        session.infer(0)
        library.predict(index, session.results, predictions[index])
    return library.score(predictions).value


def test_nms_inside_and_outside_give_the_same(models_dir: Path, tmp_path: Path) -> None:
    """The SSD cut before its NMS, with ours instead, has the same mAP within 0.1 point."""
    openvino = pytest.importorskip("openvino")
    whole = models_dir / "coco_detection" / "models" / "ssd_mobilenet_v1_coco_u8.onnx"
    graph = openvino.Core().read_model(str(whole))
    nms = next(op for op in graph.get_ordered_ops() if "NonMaxSuppression" in op.get_type_name())
    outputs = []
    for place, name in enumerate(("boxes", "scores")):
        result = openvino.opset8.result(nms.input_value(place))
        result.input_value(0).get_tensor().set_names({name})
        outputs.append(result)
    cut = openvino.Model(outputs, graph.get_parameters())
    openvino.save_model(cut, tmp_path / "cut.xml", compress_to_fp16=False)
    (tmp_path / "cut.toml").write_text(
        '[input]\nbytes = "pixels"\n'
        '[output]\nread = "boxes"\nbox_format = "yxyx"\nmulti_label = true\nnms_iou = 0.6\n'
        "score_at_least = 0.02\n"
        'most = 10\nclass_offset = 1\nclass_is = "id"\n'
    )
    data = models_dir / "coco_detection" / "data"
    outside = _answers(str(tmp_path / "cut.toml"), tmp_path / "cut.xml", "openvino", data)
    inside = _answers("coco-ssd-mobilenet", whole, "openvino", data)
    assert outside == pytest.approx(inside, abs=0.001)
