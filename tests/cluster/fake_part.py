"""A part of a cluster without a cluster in it: it registers and answers, so that what is around it can be tested.

``FAKE`` in the environment says how it misbehaves: ``NAME=how`` with ``refuses`` (an error at the start), ``dies``
(shortly after), ``ignores`` (it does not stop when it is asked).

It loads no more than that takes: the tests of the supervisor start a hundred of them. So it reads its settings where
the supervisor writes them; that the parts take them from there, before any file, is what ``test_settings.py`` shows.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

from worker.belonging import claim
from worker.service.system import end_with_parent
from zookeeper.kazoo_authority import KazooAuthority
from zookeeper.registration import ControllerDescriptor, WorkerDescriptor
from zookeeper.secret import Secret

SETTINGS = ("zookeeper", "secret_file", "deployment", "data", "shards")


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind")
    parser.add_argument("--name")
    parser.add_argument("--supervised", action="store_true")
    parser.add_argument("--fd", type=int)
    options = parser.parse_args()
    settings = {name: os.environ.get(f"HEADRACE_{name.upper()}", "") for name in SETTINGS}
    if options.supervised:
        end_with_parent()
    how = dict(each.split("=") for each in os.environ.get("FAKE", "").split() if "=" in each).get(options.name, "")
    if how == "refuses":
        print("error: the fake refuses\nhint: ask it for something else", flush=True)
        sys.exit(1)
    stop = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, (lambda: None) if how == "ignores" else stop.set)
    data = Path(settings["data"])
    secret = Secret(Path(settings["secret_file"]))
    authority = KazooAuthority(settings["zookeeper"], settings["deployment"], secret=secret)
    await authority.start()
    if options.kind == "worker":
        claim(data, authority.deployment, authority.deployment_id)
        await authority.register_worker(WorkerDescriptor(options.name, "h", 1, os.getpid(), os.getpid(), str(data)))
    elif options.kind == "controller":
        authority.candidate(ControllerDescriptor(options.name, "h", 1, os.getpid()))
    else:
        answer = f"HTTP/1.1 200 OK\r\ncontent-length: {len(options.name)}\r\nconnection: close\r\n\r\n{options.name}"

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer.encode())
            writer.close()

        await asyncio.start_server(connected, sock=socket.socket(fileno=options.fd))
    print(f"{options.name} runs with shards {settings['shards']}", flush=True)
    if how == "dies":
        await asyncio.sleep(0.2)
        sys.exit(3)
    await stop.wait()
    with (data / "stopped").open("a") as file:
        file.write(f"{options.name}\n")
    await authority.close()


asyncio.run(main())
