"""What a process does that ``acpl train --devices N`` has started: its part of the run, without a word."""

import json
import signal
import sys

from acpl.engine.crew import Crew, plain_environment
from acpl.engine.launching import at_work
from acpl.engine.outlets import outlive_readers
from acpl.engine.training import take_part
from acpl.errors import SaidElsewhereError, UserError


def main(seat: str) -> int:
    """Take part in a run as the process that ``seat`` describes."""
    outlive_readers()
    for number in (signal.SIGINT, signal.SIGHUP):  # a terminal tells all; the first process tells the others
        signal.signal(number, signal.SIG_IGN)
    crew = Crew(**{**json.loads(seat), "environment": plain_environment()})
    try:
        with at_work(crew) as processes:
            take_part(processes)
    except SaidElsewhereError:
        return 2
    except UserError as error:
        sys.stderr.write(f"acpl: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
