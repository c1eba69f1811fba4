"""The console script. Without arguments it is the daemon, with a subcommand the command line of `cli`.

stdio is claimed before anything heavy is imported, so that not even an import can write to the protocol.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Serve on stdio, or run a subcommand."""
    if len(sys.argv) > 1:
        from daemon.cli import cli  # noqa: PLC0415 - the daemon itself never needs it

        cli()
        return
    from daemon.stdio import claim  # noqa: PLC0415 - see the header

    stdio = claim()

    import anyio  # noqa: PLC0415 - see the header

    from daemon.host import Host  # noqa: PLC0415
    from daemon.record import Recorder  # noqa: PLC0415
    from daemon.server import Server  # noqa: PLC0415

    recorder = Recorder.from_environment()
    host = (
        Host(recorder=recorder)
        if recorder is None
        else Host(now=recorder.now, new_id=recorder.new_id, recorder=recorder)
    )
    anyio.run(Server(host, recorder=recorder).run, stdio)
    # A writer thread may still hang on a peer that does not read; nothing is left that its end could harm.
    os._exit(0)
