"""Annotations in COCO's format: reading them without believing them."""

import math
from pathlib import Path
from typing import Any

import msgspec

from edgeperf.datasets.base import DatasetError

#: Where the annotations of a folder may be.
FILES = (
    "annotations.json",
    "annotations/instances_val2017.json",
    "_annotations.coco.json",
    "instances.json",
)
#: Where its images may be, from the folder.
IMAGES = ("images", "val2017", "data", ".")
EXPECTED = f"a COCO file, or a folder with {FILES[0]} or {FILES[1]}"


class Picture(msgspec.Struct, frozen=True):
    """One image: its number in the file, where it is, height and width in pixels."""

    id: int
    path: Path
    size: tuple[int, int]


class Annotated(msgspec.Struct, frozen=True, kw_only=True):
    """Images and the boxes on them.

    Attributes:
        where: The annotation file.
        pictures: In the file's order, which is LoadGen's.
        names: Of the categories, by their number.
        boxes: COCO's annotations, complete with ``id``, ``area`` and ``iscrowd``.
    """

    where: Path
    pictures: tuple[Picture, ...]
    names: dict[int, str]
    boxes: tuple[dict[str, Any], ...]


class _Image(msgspec.Struct):
    id: int
    file_name: str
    width: int
    height: int


class _Category(msgspec.Struct):
    id: int
    name: str


class _Box(msgspec.Struct):
    image_id: int
    category_id: int
    bbox: tuple[float, float, float, float]
    iscrowd: int = 0
    area: float | None = None


class _File(msgspec.Struct):
    images: tuple[_Image, ...]
    annotations: tuple[_Box, ...]
    categories: tuple[_Category, ...]


def find_annotations(data: Path) -> Path:
    """Return the annotation file that *data* is or holds.

    Raises:
        DatasetError: There is none.
    """
    if data.is_file():
        return data
    if not data.exists():
        raise DatasetError(f"{data}: does not exist; expected {EXPECTED}")
    for name in FILES:
        if (data / name).is_file():
            return data / name
    raise DatasetError(f"{data}: holds no annotations; expected {EXPECTED}")


def read_coco(data: Path, images: str | None = None) -> Annotated:
    """Read annotations and find the images.

    Args:
        data: The file, or a folder with one.
        images: Folder of the images from the annotations on; None looks for it.

    Raises:
        DatasetError: Something is missing or wrong; the message names the file and the entry.
    """
    where = find_annotations(data)
    try:
        file = msgspec.json.decode(where.read_bytes(), type=_File)
    except OSError as error:
        raise DatasetError(f"{where}: cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DatasetError(f"{where}: not COCO's format: {error}") from error
    if not file.images:
        raise DatasetError(f"{where}: lists no image")
    folder = _images_folder(where, file.images[0].file_name, images)
    pictures = tuple(_picture(where, folder, image) for image in file.images)
    missing = [picture.path for picture in pictures if not picture.path.is_file()]
    if missing:
        raise DatasetError(
            f"{missing[0]}: listed in {where}, but not there ({len(missing)} of {len(pictures)}"
            " are missing)"
        )
    return Annotated(
        where=where,
        pictures=pictures,
        names={category.id: category.name for category in file.categories},
        boxes=_boxes(where, file),
    )


def _images_folder(where: Path, first: str, named: str | None) -> Path:
    if named is not None:
        return where.parent / named
    base = where.parent.parent if where.parent.name == "annotations" else where.parent
    for name in IMAGES:
        if (base / name / first).is_file():
            return base / name
    looked = ", ".join(str(base / name) for name in IMAGES)
    raise DatasetError(
        f"{where}: its first image {first!r} is in none of {looked}; set [data] images"
    )


def _picture(where: Path, folder: Path, image: _Image) -> Picture:
    if image.width < 1 or image.height < 1:
        raise DatasetError(f"{where}: image {image.id} is {image.width}x{image.height}")
    return Picture(image.id, folder / image.file_name, (image.height, image.width))


def _boxes(where: Path, file: _File) -> tuple[dict[str, Any], ...]:
    if not file.annotations:
        raise DatasetError(f"{where}: holds no box: there is nothing to find")
    images = {image.id for image in file.images}
    if len(images) != len(file.images):
        raise DatasetError(f"{where}: two images have the same id")
    categories = {category.id for category in file.categories}
    boxes = []
    for number, box in enumerate(file.annotations, start=1):
        problem = None
        if box.image_id not in images:
            problem = f"image_id {box.image_id} is no image of the file"
        elif box.category_id not in categories:
            problem = f"category_id {box.category_id} is no category of the file"
        elif not all(map(math.isfinite, box.bbox)) or min(box.bbox[2:]) < 0:
            problem = f"bbox is {list(box.bbox)}; expected left, top, width, height"
        if problem is not None:
            raise DatasetError(f"{where}: annotation {number}: {problem}")
        boxes.append(
            {
                "id": number,
                "image_id": box.image_id,
                "category_id": box.category_id,
                "bbox": list(box.bbox),
                "iscrowd": box.iscrowd,
                "area": box.bbox[2] * box.bbox[3] if box.area is None else box.area,
            }
        )
    return tuple(boxes)
