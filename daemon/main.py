"""The console script. Without arguments it is the daemon, with a subcommand the command line of `cli`.

stdio is claimed before anything heavy is imported, so that not even an import can write to the protocol. `ready`
is said as soon as the loop runs; what is asked from then on waits in the pipe while the rest is imported.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from daemon.stdio import Stdio


def main() -> None:
    """Serve on stdio, or run a subcommand."""
    if len(sys.argv) > 1:
        from daemon.cli import cli  # noqa: PLC0415 - the daemon itself never needs it

        cli()
        return
    from daemon.stdio import claim  # noqa: PLC0415 - see the header

    stdio = claim()

    import anyio  # noqa: PLC0415 - see the header

    anyio.run(_serve, stdio)
    # A writer thread may still hang on a peer that does not read; nothing is left that its end could harm.
    os._exit(0)


async def _serve(stdio: Stdio) -> None:
    import msgspec  # noqa: PLC0415 - see the header

    from daemon import __version__  # noqa: PLC0415
    from daemon.stdio import write_all  # noqa: PLC0415
    from protocol.rpc import PROTOCOL, Ready  # noqa: PLC0415

    ready = Ready(PROTOCOL, __version__, os.getpid())
    write_all(stdio.sink, msgspec.json.encode({"jsonrpc": "2.0", "method": "ready", "params": ready}) + b"\n")

    from daemon.host import Host  # noqa: PLC0415
    from daemon.record import Recorder  # noqa: PLC0415
    from daemon.server import Server  # noqa: PLC0415

    recorder = Recorder.from_environment()
    if recorder is None:
        await Server(Host()).run(stdio)
        return
    await Server(Host(now=recorder.now, new_id=recorder.new_id, recorder=recorder), recorder=recorder).run(stdio)
