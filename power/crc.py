"""The checksum that Modbus and its cousins use."""


def _table() -> tuple[int, ...]:
    rows = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0xA001 if value & 1 else 0)
        rows.append(value)
    return tuple(rows)


_TABLE = _table()


def crc16_modbus(data: bytes) -> int:
    """Return CRC-16/MODBUS of *data*; it goes out low byte first, whatever a data sheet says."""
    crc = 0xFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc
