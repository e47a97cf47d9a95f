"""Standard output and error that outlive whoever reads them: ``acpl train | head``, a terminal that is closed."""

import errno
import io
import os
import sys
from typing import Any


class Outlet(io.FileIO):
    """A descriptor to write to; from the moment on that its reader has gone, what is written goes nowhere."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        # A pipe is closed by its reader. A terminal that is gone answers with an error of input and output, which
        # from a file would mean a broken disk: that is to be heard of.
        self._left = {errno.EPIPE, errno.EIO} if self.isatty() else {errno.EPIPE}

    def write(self, content: Any, /) -> int:
        """How many bytes are done with."""
        try:
            return super().write(content)
        except OSError as error:
            if error.errno not in self._left:
                raise
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())  # for the processes, too, that are started from now on
        os.close(nowhere)
        return len(memoryview(content).cast("B"))


def outlive_readers() -> None:
    """No word that nobody hears any more ends this process; streams that somebody has put there stay theirs."""
    for name, first in (("stdout", sys.__stdout__), ("stderr", sys.__stderr__)):
        stream = getattr(sys, name)
        if stream is None or stream is not first or not isinstance(stream, io.TextIOWrapper):
            continue
        stream.flush()
        outlet = Outlet(stream.fileno())
        unbuffered = isinstance(stream.buffer, io.RawIOBase)
        setattr(
            sys,
            name,
            io.TextIOWrapper(
                outlet if unbuffered else io.BufferedWriter(outlet),
                encoding=stream.encoding,
                errors=stream.errors,
                line_buffering=stream.line_buffering,
                write_through=stream.write_through,
            ),
        )
