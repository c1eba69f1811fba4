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


async def _serve(stdio: Stdio) -> None:
    """Until the peer is done; then the process ends here and now.

    A thread may still hang on a peer that neither writes nor reads. Nothing is left that its end could harm, while a
    loop that closes would trip over what it says last.
    """
    import msgspec  # noqa: PLC0415 - see the header

    from daemon import __version__  # noqa: PLC0415
    from daemon.stdio import write_all  # noqa: PLC0415
    from protocol.rpc import PROTOCOL, Ready  # noqa: PLC0415

    ready = Ready(PROTOCOL, __version__, os.getpid())
    try:
        write_all(stdio.sink, msgspec.json.encode({"jsonrpc": "2.0", "method": "ready", "params": ready}) + b"\n")
    except OSError:  # the peer has gone already
        os._exit(0)

    from daemon.host import Host  # noqa: PLC0415
    from daemon.record import Recorder  # noqa: PLC0415
    from daemon.server import Server  # noqa: PLC0415

    recorder = Recorder.from_environment()
    host = Host() if recorder is None else Host(now=recorder.now, new_id=recorder.new_id, recorder=recorder)
    await Server(host, recorder=recorder).run(stdio)
    os._exit(0)
