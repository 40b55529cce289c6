"""The parts of a task file: how inputs are made, outputs read and answers judged."""

from typing import Annotated, Literal

import msgspec

from edgeperf.datasets.metrics.ranking import Costs

Positive = Annotated[int, msgspec.Meta(ge=1)]
Above0 = Annotated[float, msgspec.Meta(gt=0)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]

Colour = Literal["RGB", "BGR", "grey"]
Layout = Literal["NHWC", "NCHW"]

DETECTORS = ("ssd", "boxes", "rows", "yolo", "yolox", "fastestdet")


class InputRecipe(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """How one sample becomes the model's input.

    Attributes:
        kind: What samples are: ``image`` (files, or uint8 arrays), ``array`` (numbers),
            ``audio`` (a waveform).
        colour: Order of an image's channels; ``grey`` has one.
        resize: ``stretch`` to the size; ``shorter_side`` to a length, keeping the
            proportions, then cut the middle; ``letterbox``: keep the proportions and fill
            up; ``none``: it has the size already.
        size: Height and width; None is the model's own.
        shorter_side: Length of it in pixels; None is that of the size, over ``crop``.
        crop: Share of the shorter side that is kept; but for ``shorter_side``, the central
            square of that share is cut out before anything else.
        filter: ``bilinear``, ``bicubic``, ``box``, ``nearest`` as Pillow has them;
            ``linear`` and ``area`` as OpenCV has them.
        pad: Grey level that fills a letterbox.
        pad_at: Where the image lies in a letterbox.
        mean: Subtracted, one for all channels or one each, in the model's order.
        std: Divided by, likewise.
        layout: Where the channels are; None takes the model's shape at its word.
        bytes: What 8-bit inputs get: ``quantised`` by the model's own scale, or the
            ``pixels`` themselves (int8: less 128).
        scale: Of an 8-bit input whose file does not tell it.
        zero_point: Likewise.
        sample_rate: Of audio, Hz; a file with another rate is refused.
    """

    kind: Literal["image", "array", "audio"] = "image"
    colour: Colour = "RGB"
    resize: Literal["stretch", "shorter_side", "letterbox", "none"] = "stretch"
    size: tuple[Positive, Positive] | None = None
    shorter_side: Positive | None = None
    crop: Share | None = None
    filter: Literal["bilinear", "bicubic", "box", "nearest", "linear", "area"] = "bilinear"
    pad: Annotated[int, msgspec.Meta(ge=0, le=255)] = 114
    pad_at: Literal["centre", "top-left"] = "centre"
    mean: tuple[float, ...] = (0.0,)
    std: tuple[Above0, ...] = (1.0,)
    layout: Layout | None = None
    bytes: Literal["quantised", "pixels"] = "quantised"
    scale: Above0 | None = None
    zero_point: int = 0
    sample_rate: Positive = 16_000

    @property
    def channels(self) -> int:
        """How many channels an image has."""
        return 1 if self.colour == "grey" else 3


class OutputRecipe(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """How the model's output is read.

    Attributes:
        read: ``argmax``: class scores as they are; ``softmax``: class scores that become
            probabilities; ``threshold``: one score, yes from a threshold on; ``ssd``:
            boxes after the model's own NMS; ``rows``: the same in one output;
            ``boxes``: boxes and class scores before NMS;
            ``yolo``, ``yolox``, ``fastestdet``: rows as those models have them; ``text``:
            tokens, or scores of them; ``segments``: a class for each place of the input.
        name: Which output, where the model has several.
        background: Whether class 0 of the model is "nothing" and ours begin at 1.
        sigmoid: ``threshold``: whether the score is a logit.
        threshold: From which score on the answer is yes.
        positive: Of the classes, the one that is told from the rest by its score.
        outputs: ``ssd``, ``boxes``: name of each output where order and shape do not tell:
            ``boxes``, ``scores``, ``classes``, ``count``.
        box_format: Order of a box's numbers: corners, or centre and size.
        box_unit: ``share`` of the input's side, or its ``pixels``.
        score_at_least: Detections below do not count.
        multi_label: Whether one box may be of several classes, each a detection.
        nms_iou: Overlap from which the weaker of two boxes of a class falls; None leaves
            out NMS.
        most: The most detections of one image.
        clip: Whether boxes are cut at the edges of the image.
        class_offset: Added to the model's class.
        class_is: What that is then: the ``position`` among the categories in order of
            their number, or the number (``id``) itself.
        vocabulary: ``text``: file with one token a line, beside the task file or the data.
        ctc: ``text``: whether equal neighbours are one token and blanks none.
        blank: ``text``: the blank's number.
        stop: ``text``: the token that ends a text.
        join: ``text``: what stands between two tokens; a token's own ``▁`` or ``|`` is a
            blank in any case.
        class_axis: ``segments``: the axis of the class scores, from behind; 0 where the
            output has classes already.
    """

    read: Literal["argmax", "softmax", "threshold", "ssd", "boxes", "rows", "yolo", "yolox",
                  "fastestdet", "text", "segments"] = "argmax"  # fmt: skip
    name: str | None = None
    background: bool = False
    sigmoid: bool = False
    threshold: float = 0.5
    positive: str | int | None = None
    outputs: dict[Literal["boxes", "scores", "classes", "count"], str] = msgspec.field(
        default_factory=dict
    )
    box_format: Literal["yxyx", "xyxy", "xywh", "cxcywh"] = "xyxy"
    box_unit: Literal["share", "pixels"] = "share"
    score_at_least: float = 0.0
    multi_label: bool = False
    nms_iou: Share | None = None
    most: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100
    clip: bool = True
    class_offset: int = 0
    class_is: Literal["position", "id"] = "position"
    vocabulary: str | None = None
    ctc: bool = False
    blank: int = 0
    stop: int | None = None
    join: str = ""
    class_axis: Annotated[int, msgspec.Meta(le=0)] = 0


class MetricRecipe(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Which metric decides, and what it must reach.

    Attributes:
        gate: Its name; None is the usual one for what is read.
        at_least: The user's own floor.
        at_most: The same for a metric that is better when lower.
        reference: Its value for the FP32 model on these samples.
        share: Share of that reference to reach; None asks for 0.99.
        precisions: Precisions at which recall is wanted.
        recalls: Recalls at which precision is wanted.
        costs: What a miss and a false alarm cost.
    """

    gate: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    reference: Above0 | None = None
    share: Share | None = None
    precisions: tuple[Share, ...] = (0.9,)
    recalls: tuple[Share, ...] = (0.9,)
    costs: Costs | None = None


class DataRecipe(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Where samples are, and what must be known about them.

    Attributes:
        path: Of the samples, beside the task file; ``--data`` goes before it.
        catalogue: Name of a dataset of the catalogue, instead.
        label_offset: Added to labels that are numbers (-1 where they count from 1).
        images: Folder of the images of a COCO file; None looks for it.
        source: Where the samples come from.
        licence: Theirs.
        samples: How many there are in full.
    """

    path: str | None = None
    catalogue: str | None = None
    label_offset: int = 0
    images: str | None = None
    source: str | None = None
    licence: str | None = None
    samples: Positive | None = None
