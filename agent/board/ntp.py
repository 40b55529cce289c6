"""Asking the kernel how well its clock is kept, without any NTP program.

Every NTP client (timesyncd, chrony, ntpd) reports through the same system call, so this
answers for all of them and needs no permission.
"""

import ctypes

import msgspec

#: Source: Linux ``include/uapi/linux/timex.h``.
_STA_UNSYNC = 0x40
_TIME_ERROR = 5


class KernelClock(msgspec.Struct, frozen=True, kw_only=True):
    """State of the kernel's clock discipline.

    Attributes:
        synchronised: Whether an NTP client keeps the clock.
        max_error_ns: Bound on the error against true time; grows by 500 ppm without news.
        frequency_ppm: Correction of the crystal in force.
    """

    synchronised: bool
    max_error_ns: int
    frequency_ppm: float


class _Timeval(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_usec", ctypes.c_long))


class _Timex(ctypes.Structure):
    """``struct timex``; only the beginning is read, all of it must have room."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("time", _Timeval),
        ("tick", ctypes.c_long),
        ("rest", ctypes.c_long * 32),
    )


def kernel_clock() -> KernelClock | None:
    """Return the state of the clock, None where the kernel does not tell."""
    state = _Timex()  # modes 0: read, change nothing
    try:
        code = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(state))
    except (AttributeError, OSError):  # a C library without it
        return None
    if code < 0:
        return None
    return KernelClock(
        synchronised=code != _TIME_ERROR and not state.status & _STA_UNSYNC,
        max_error_ns=state.maxerror * 1000,
        frequency_ppm=state.freq / 65536,  # fixed point, 16 bits after the point
    )
