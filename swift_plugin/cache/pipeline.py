"""Work that is done ahead in threads, in order and in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def prepare_ahead(
    items: Iterable[Any], read: Callable[[Any], Any], prepare: Callable[[Any], Any], *, num_workers: int
) -> Iterator[tuple[Any, Any]]:
    """Give each item with `prepare(read(item))`.

    Args:
        items: taken one after another, only as far ahead as there is work for the threads.
        read: called in one thread, in order.
        prepare: called in `num_workers` threads.

    Yields:
        The item and its result, in order. What a thread raises is raised here.
    """
    reader, workers = ThreadPoolExecutor(1), ThreadPoolExecutor(num_workers)
    waiting: deque = deque()
    try:
        for item in items:
            raw = reader.submit(read, item)
            waiting.append((item, workers.submit(lambda raw=raw: prepare(raw.result()))))
            if len(waiting) > num_workers:
                item, result = waiting.popleft()
                yield item, result.result()
        while waiting:
            item, result = waiting.popleft()
            yield item, result.result()
    finally:
        for pool in (reader, workers):
            pool.shutdown(cancel_futures=True)
