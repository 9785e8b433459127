"""Commands on blobs: blob put, blob get."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import BinaryIO, cast

import click

from hbasemk.cli import output
from hbasemk.cli.files import STREAM, DiskPath, NamedReader, standard_input
from hbasemk.cli.session import Session


@click.group("blob")
def blob() -> None:
    """Store and read blobs (large contents)."""


@blob.command("put")
@click.argument("file", type=DiskPath(exists=True, dir_okay=False, allow_dash=True), default=STREAM)
@click.option("--replace", is_flag=True, help="Store the content even if it is stored already; repairs a damaged blob.")
@click.pass_obj
def blob_put(session: Session, file: str, replace: bool) -> None:
    """Store a file as a blob and print the blob's id.

    Reads FILE (default: standard input). The command rejects the files of the repository itself.
    """
    from hbasemk.transfer import own_files

    use = "kept as a blob"
    with contextlib.ExitStack() as stack:
        # Open the stream before the repository, and close it afterwards.
        if file == STREAM:
            stream = standard_input("the content")
            own_files.refuse_open(stream, "standard input", session.url, use)
        else:
            stream = stack.enter_context(own_files.open_other(file, session.url, use))
        repository = stack.enter_context(session.open())
        named = cast("BinaryIO", NamedReader(stream, "standard input" if file == STREAM else file))
        session.rows([[repository.blobs.write(named, replace=replace).id]], ["blob"])


@blob.command("get")
@click.argument("blob_id", metavar="ID")
@click.argument("file", type=DiskPath(dir_okay=False, readable=False, allow_dash=True), required=False)
@click.pass_obj
def blob_get(session: Session, blob_id: str, file: str | None) -> None:
    """Write the content of a blob to a file.

    Writes the blob with the given ID to FILE (default and -: standard output). After an error, an existing FILE is as before,
    unless you may create no file beside it: then the command overwrites it in place, as it does, at the end, with a file that is
    mounted into a container. The command ignores --output: it always writes the bytes of the blob.
    """
    from hbasemk.transfer import own_files, target_file

    with session.open() as repository:
        if file is None or file == STREAM:
            output.print_bytes(repository.blobs.stream(blob_id))
            return
        place = Path(file)
        # SQLite has made all its files by now.
        own_files.refuse(place, session.url, "overwritten")
        with target_file.opened(place) as target:
            target.writelines(repository.blobs.stream(blob_id))


GROUPS = ((blob, (blob_put, blob_get)),)
