"""The tables, as the newest migration leaves them.

Documents (spec, result, description) are kept whole as JSON text, as they arrived; the
columns beside them exist to be searched. Times are wall-clock nanoseconds since 1970, for
people and deadlines only: order within a board comes from ``seq``.

``migrations.py`` makes the tables; a test checks that the two agree.
"""

from sqlalchemy import BigInteger, Column, Double, ForeignKey, MetaData, Table, Text

METADATA = MetaData()

store_info = Table(
    "store_info",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

device = Table(
    "device",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("enrolled_ns", BigInteger, nullable=False),
    Column("revoked_ns", BigInteger),
    Column("state", Text, nullable=False),
    Column("session", Text),
    Column("status", Text),
    Column("seen_ns", BigInteger),
    Column("counter", BigInteger, nullable=False),
    Column("description", Text),
    Column("temperature_c", Double),
)

device_label = Table(
    "device_label",
    METADATA,
    Column("device", Text, ForeignKey("device.id"), primary_key=True),
    Column("label", Text, primary_key=True),
)

invite = Table(
    "invite",
    METADATA,
    Column("code", Text, primary_key=True),
    Column("device", Text),
    Column("expires_ns", BigInteger, nullable=False),
    Column("used_ns", BigInteger),
)

run = Table(
    "run",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("device", Text, ForeignKey("device.id"), nullable=False),
    Column("state", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("origin", Text, nullable=False),
    Column("campaign", Text),
    Column("cell", BigInteger),
    Column("request", Text),
    Column("spec", Text, nullable=False),
    Column("model", Text),
    Column("model_sha256", Text),
    Column("backend", Text),
    Column("scenario", Text),
    Column("preset", Text),
    Column("task", Text),
    Column("created_ns", BigInteger, nullable=False),
    Column("started_ns", BigInteger),
    Column("ended_ns", BigInteger),
    Column("progress", Text),
    Column("progress_seq", BigInteger, nullable=False),
    Column("error_class", Text),
    Column("error", Text),
    Column("exit_code", BigInteger),
    Column("verdict", Text),
    Column("comparable", BigInteger),
    Column("headline", Text),
    Column("headline_value", Double),
    Column("headline_unit", Text),
    Column("result_id", Text),
    Column("result_sha256", Text),
    Column("result", Text),
)

event = Table(
    "event",
    METADATA,
    Column("device", Text, ForeignKey("device.id"), primary_key=True),
    Column("id", Text, primary_key=True),
    Column("stream", Text, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("run", Text),
    Column("received_ns", BigInteger, nullable=False),
    Column("attempt", BigInteger),
    Column("body", Text, nullable=False),
)

log = Table(
    "log",
    METADATA,
    Column("run", Text, ForeignKey("run.id"), primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("line", Text, nullable=False),
)

metric = Table(
    "metric",
    METADATA,
    Column("run", Text, ForeignKey("run.id"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("unit", Text, nullable=False),
    Column("value", Double, nullable=False),
)

condition = Table(
    "condition",
    METADATA,
    Column("run", Text, ForeignKey("run.id"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

artefact = Table(
    "artefact",
    METADATA,
    Column("run", Text, ForeignKey("run.id"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("sha256", Text, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
)

model = Table(
    "model",
    METADATA,
    Column("sha256", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("format", Text, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("added_ns", BigInteger, nullable=False),
)

command = Table(
    "command",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("device", Text, ForeignKey("device.id"), nullable=False),
    Column("run", Text),
    Column("type", Text, nullable=False),
    Column("counter", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    Column("issued_ns", BigInteger, nullable=False),
    Column("deadline_ns", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("tries", BigInteger, nullable=False),
    Column("sent_ns", BigInteger),
    Column("reply", Text),
)

campaign = Table(
    "campaign",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("source", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("created_ns", BigInteger, nullable=False),
)

cell = Table(
    "cell",
    METADATA,
    Column("campaign", Text, ForeignKey("campaign.name"), primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("device", Text, ForeignKey("device.id"), nullable=False),
    Column("request", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempts", BigInteger, nullable=False),
    Column("run", Text),
    Column("not_before_ns", BigInteger, nullable=False),
)
