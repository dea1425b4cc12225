"""Several threads and one manager: everyone gets what they would get alone."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import torch
from torch import Tensor

from foveate.graphs import OutputRows

from .checks import captured, same_bits
from .fake_encoder import OUTPUT_WIDTH, FakeEncoder, RowBatch, settings

THREADS, ROUNDS = 8, 25
ITEMS = [[[4]], [[16, 16], [3]], [[40]], [[1] * 9], [[12], [40], [5]], [[8]], [[32]], [[20, 1], [33]]]


def test_eight_threads_at_once_get_the_bits_that_each_gets_alone_and_all_are_counted() -> None:
    manager = captured(FakeEncoder(), settings())
    batches = [RowBatch.of(*items, seed=seed) for seed, items in enumerate(ITEMS)]
    alone = [manager.execute(batch) for batch in batches]
    start = Barrier(THREADS)

    def work(index: int) -> bool:
        start.wait()
        return all(same_bits(manager.execute(batches[index]), alone[index]) for _ in range(ROUNDS))

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(work, range(THREADS)))
    assert manager.stats.batches == THREADS * (ROUNDS + 1)
    assert manager.stats.tiles == (ROUNDS + 1) * sum(len(batch.tiles) for batch in batches)


def test_threads_may_scatter_into_one_table_of_embeddings() -> None:
    manager = captured(FakeEncoder(), settings())
    batches = [RowBatch.of(*items, seed=seed) for seed, items in enumerate(ITEMS)]
    embeddings = torch.zeros(sum(batch.tokens for batch in batches), OUTPUT_WIDTH)
    rows = torch.randperm(len(embeddings)).split([batch.tokens for batch in batches])

    def work(batch: RowBatch, rows: Tensor) -> list[Tensor]:
        return manager.execute(batch, OutputRows(embeddings, rows))

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(work, batches, rows)) == [[]] * THREADS
    for batch, taken in zip(batches, rows, strict=True):
        assert torch.allclose(embeddings[taken], FakeEncoder().encoder_eager_forward(batch), atol=1e-5)


def test_a_thread_whose_batch_fails_holds_nobody_up() -> None:
    class Brittle(FakeEncoder):
        def encoder_eager_forward(self, batch: RowBatch) -> Tensor:
            if 45 in batch.tiles:
                raise MemoryError
            return super().encoder_eager_forward(batch)

    manager = captured(Brittle(), settings())
    good, bad = RowBatch.of([16, 4]), RowBatch.of([8], [45])
    alone = manager.execute(good)
    with ThreadPoolExecutor(THREADS) as pool:
        results = [pool.submit(manager.execute, bad if index % 2 else good) for index in range(4 * THREADS)]
        for index, result in enumerate(results):
            if index % 2:
                assert isinstance(result.exception(timeout=60), MemoryError)
            else:
                assert same_bits(result.result(timeout=60), alone)
