"""``python -m tests.hostile.poller PORT``: polls a view until a line comes, and prints how long each answer took."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time

PAGE = b"GET /v1/views/V?id=1 HTTP/1.1\r\nhost: localhost\r\n\r\n"
PAUSE_SECONDS = 0.01


async def poll(port: int) -> list[float]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    ends, loop = asyncio.Event(), asyncio.get_running_loop()
    threading.Thread(target=lambda: (sys.stdin.readline(), loop.call_soon_threadsafe(ends.set)), daemon=True).start()
    took: list[float] = []
    while not ends.is_set():
        before = time.perf_counter()
        writer.write(PAGE)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.partition(b"content-length: ")[2].split(b"\r\n", 1)[0])
        await reader.readexactly(length)
        assert head.startswith(b"HTTP/1.1 200"), head
        took.append(time.perf_counter() - before)
        if len(took) == 1:
            print("polling", flush=True)
        await asyncio.sleep(PAUSE_SECONDS)
    return took


if __name__ == "__main__":
    print(json.dumps(asyncio.run(poll(int(sys.argv[1])))))
