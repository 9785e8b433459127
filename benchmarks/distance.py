"""Put a distance between clients and a server: ``python -m benchmarks.distance HOST:PORT``.

On one machine a round trip takes some tenths of a millisecond, so benchmarks show mostly how much work each call is. Between
machines the number of calls one after another counts more.
"""

from __future__ import annotations

import threading

import click

from benchmarks.wire import Relay


def address(_: click.Context, __: click.Parameter, value: str) -> tuple[str, int]:
    """Return the host and the port that an argument names."""
    host, _separator, port = value.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise click.BadParameter(f"{value!r} does not name a server; expected HOST:PORT, such as 127.0.0.1:9091")
    return host, int(port)


@click.command()
@click.argument("server", metavar="HOST:PORT", callback=address)
@click.option(
    "--round-trip",
    type=click.FloatRange(0.1, 10_000),
    default=5.0,
    show_default=True,
    metavar="MS",
    help="Milliseconds that a request and its reply together take longer.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Listen on this port. Default: any free one.")
def main(server: tuple[str, int], round_trip: float, port: int) -> None:
    """Forward connections to a server, with the delay of a longer way, until Ctrl-C. Print the address to connect to."""
    host, number = server
    try:
        forwarding = Relay(host, number, delay=round_trip / 2000, listen=port)
    except OSError as error:
        raise click.UsageError(f"--port must be a free port, got {port}; choose another one ({error})") from error
    with forwarding as relay:
        click.echo(f"127.0.0.1:{relay.port}")
        threading.Event().wait()


if __name__ == "__main__":
    main()
