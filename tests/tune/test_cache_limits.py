from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from outpace import api
from outpace.errors import UsageError
from outpace.measure.machine import memory_limit
from outpace.records.evidence import CacheLimits, Evidence
from outpace.records.target import Target
from outpace.remedies.cache_decoded import CacheDecoded
from outpace.remedies.cache_samples import CacheSamples
from outpace.remedies.model import kept_shares
from outpace.seams.setup import AS_IS
from outpace.tune.cache_limits import cache_limits
from tests.conftest import evidence_of, with_entry
from tests.remedies.some_evidence import ALL, IMAGES

MIB = 2**20
replace = msgspec.structs.replace


def limited(name: str, ram: int | None, disk: int | None = None) -> Evidence:
    return replace(ALL[name], cache_limits=CacheLimits(ram, disk))


@pytest.mark.parametrize("ram", [3 * MIB, 700 * MIB, 2 << 40])
def test_what_is_kept_in_memory_stays_within_the_limit(ram: int) -> None:
    for name in ("images", "fixed_images", "rows"):
        evidence = limited(name, ram)
        samples, images = CacheSamples(), CacheDecoded()
        kept = samples.setup(AS_IS, samples.settings(evidence)).feed.cache_bytes
        assert 0 < kept <= min(ram, CacheSamples().limit(ALL[name]))
        kept = images.setup(AS_IS, images.settings(evidence)).decoded_bytes
        assert 0 < kept <= min(ram, CacheDecoded().limit(ALL[name]))


def test_what_the_training_takes_itself_is_not_free() -> None:
    memory = replace(ALL["fixed_images"].memory, limit_bytes=1600 * MIB, rss_bytes=1000 * MIB)
    evidence = replace(ALL["fixed_images"], memory=memory)
    for remedy in (CacheSamples(), CacheDecoded()):
        assert remedy.limit(evidence) == 300 * MIB
    full = replace(evidence, memory=replace(memory, rss_bytes=1700 * MIB))
    for remedy in (CacheSamples(), CacheDecoded()):
        assert remedy.limit(full) == 0
        assert not remedy.applies(full).yes


def test_a_gpus_memory_is_not_the_machines() -> None:
    memory = replace(ALL["gpu"].memory, limit_bytes=24 << 30, free_bytes=2 << 30, rss_bytes=1 << 30)
    evidence = replace(ALL["gpu"], memory=memory)
    for remedy in (CacheSamples(), CacheDecoded()):
        assert remedy.limit(evidence) == 1 << 30


def test_samples_that_do_not_fit_are_not_kept() -> None:
    assert CacheSamples().applies(limited("fixed_images", None)).yes
    verdict = CacheSamples().applies(limited("fixed_images", 64 * MIB))
    assert not verdict.yes
    assert "0.1 may be taken" in verdict.reason


def test_the_fewer_images_are_kept_the_less_is_predicted() -> None:
    remedy = CacheDecoded()
    gains = [remedy.predict(limited("images", gib << 30)).speedup for gib in (4, 2, 1)]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > gains[-1] > 1
    few = limited("images", 256 * MIB)
    assert not remedy.applies(few).yes
    on_disk = limited("images", 256 * MIB, 8 << 30)
    assert remedy.applies(on_disk).yes
    setup = remedy.setup(AS_IS, remedy.settings(on_disk))
    assert (setup.decoded_bytes, setup.decoded_disk_bytes) == (256 * MIB, 8 << 30)
    assert remedy.setup(AS_IS, remedy.settings(few)).decoded_disk_bytes == 0


def test_limits_that_cannot_be() -> None:
    assert cache_limits(None, None) == CacheLimits()
    assert cache_limits(5 * MIB, None) == CacheLimits(5 * MIB)
    with pytest.raises(UsageError, match=r"--ram is 0 bytes"):
        cache_limits(0, None)
    with pytest.raises(UsageError, match=r"--disk is -1 bytes"):
        cache_limits(None, -1)
    with pytest.raises(UsageError, match=r"--ram is .* GiB, this machine gives memory of"):
        cache_limits(2 * memory_limit(), None)
    with pytest.raises(UsageError, match=r"--disk is .* GiB, .* has room for"):
        cache_limits(None, 2 * shutil.disk_usage(tempfile.gettempdir()).free)


def test_nothing_is_run_where_there_is_less_than_was_asked_for(tmp_path: Path) -> None:
    target = Target("script", str(tmp_path / "train.py"), (), str(tmp_path))
    with pytest.raises(UsageError, match="--ram"):
        api.tune(
            target, session=tmp_path / "s", recipe=tmp_path / "r.toml", ram_bytes=2 * memory_limit()
        )
    assert not (tmp_path / "s").exists()


def test_the_limits_are_part_of_what_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("import torch\n")
    limits = {"ram_bytes": 5 * MIB, "disk_bytes": None}
    code, log = with_entry(path, tmp_path / "session", cache_limits=limits)
    assert code == 0, log
    assert evidence_of(tmp_path / "session").cache_limits == CacheLimits(5 * MIB)


def test_workers_keep_what_they_have_decoded_themselves() -> None:
    """New ones each epoch keep nothing; those that last meet an image again by chance."""

    def under(**facts: Any) -> Evidence:
        return replace(IMAGES, input=replace(IMAGES.input, **facts))

    one = CacheDecoded()
    assert one.applies(under(workers=0)).yes
    assert not one.applies(under(workers=2)).yes
    assert one.applies(under(workers=2, persistent=True, epochs=20)).yes
    kept = [
        sum(kept_shares(evidence, one.setup(AS_IS, one.settings(evidence))))
        for evidence in (under(workers=n, persistent=True, epochs=5) for n in (0, 1, 2, 8))
    ]
    assert kept[0] == kept[1] == 1.0
    # Of two workers one has met an image with chances of 1/2, 3/4, 7/8 and 15/16.
    assert kept[2] == pytest.approx((1 / 2 + 3 / 4 + 7 / 8 + 15 / 16) / 4)
    assert kept[3] < 0.35
