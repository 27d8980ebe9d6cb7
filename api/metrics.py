"""Prometheus metrics: requests by route and status with their latency, and the deployment's own counters.

What the endpoints count (``endpoints.py``) is turned into metric families when somebody scrapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from api.endpoints import BOUNDS, RequestMetrics
from api.limits import Admission
from controller.deployment import Deployment

LISTED = {"workers": ("worker",), "domains": ("domain",), "links": ("from", "to")}
"""Lists of ``/v1/status``, whose entries are identified by these fields. They become labels; whether something holds
(a domain is linked, a worker registered) is 1 or 0."""
NAMED = {"tables": "table", "views": "view", "upstreams": "upstream"}
"""Objects of ``/v1/status`` whose keys users have chosen. They become labels too: as parts of a metric's name, ``a-b``
and ``a_b`` would be one."""

INVALID = re.compile(r"[^a-zA-Z0-9_]")


class Metrics(Collector):
    """A registry of its own, so that several deployments in one process (tests, embedded) do not meet."""

    def __init__(
        self,
        deployment: Deployment,
        requests: RequestMetrics,
        admission: Admission,
        beside: Mapping[str, Callable[[], dict[str, Any]]] = MappingProxyType({}),
    ) -> None:
        """``beside``: what else the status of this process shows, by its name there."""
        self._deployment = deployment
        self._beside = beside
        self._admission = admission
        self._requests = requests
        self._shown: dict[str, Any] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)

    async def status(self) -> dict[str, Any]:
        """The deployment's, and what is under way in this process."""
        beside = {name: told() for name, told in self._beside.items()}
        shown = {**await self._deployment.status(), "http": self._admission.status(), **beside}
        alarms = [told.get("alarm", "") for told in beside.values()]
        if followed := await self._deployment.upstreams.status():
            shown["upstreams"] = followed
            alarms += [f'upstream "{name}": {each["alarm"]}' for name, each in followed.items() if each["alarm"]]
        wrong = [each for each in (shown.get("health", ""), *alarms) if each]
        return shown if len(wrong) < 2 else {**shown, "health": "; ".join(each for each in wrong if each != "ok")}

    async def text(self) -> bytes:
        self._shown = await self.status()
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Nothing in advance: the names come from the deployment, which need not be up when this is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        answers = CounterMetricFamily(
            "headrace_http_requests", "Answers by route and status", labels=("route", "status")
        )
        seconds = HistogramMetricFamily("headrace_http_seconds", "Seconds until the answer was sent", labels=("route",))
        for route, times in self._requests.routes.items():
            for status, count in times.statuses.items():
                answers.add_metric((route, str(status)), count)
            seconds.add_metric((route,), _cumulative(times.buckets), times.total)
        yield answers
        yield seconds
        shown = self._shown
        healthy = shown.get("health") == "ok"
        yield GaugeMetricFamily("headrace_healthy", "1 where health in /v1/status is ok, else 0", value=healthy)
        for name, number in shown.get("counters", {}).items():
            yield CounterMetricFamily(_name(name), f"The deployment's counter {name}", value=number)
        rest = {key: value for key, value in shown.items() if key not in ("counters", "http") and key not in NAMED}
        http = dict(shown.get("http", {}))
        refused = CounterMetricFamily("headrace_http_refused", "Refused by the limit's name", labels=("limit",))
        for limit, count in http.pop("refused", {}).items():
            refused.add_metric((limit,), count)
        yield refused
        for name, number in _numbers(http):
            yield GaugeMetricFamily(_name(f"http_{name}"), f"{name} under way, in /v1/status", value=number)
        for name, number in _numbers(rest):
            yield GaugeMetricFamily(_name(name), f"{name} of /v1/status", value=number)
        for name, label in NAMED.items():
            entries = [{label: key, **entry} for key, entry in shown.get(name, {}).items()]
            yield from _listed(name, (label,), entries)
        for name, labels in LISTED.items():
            yield from _listed(name, labels, shown.get(name, ()))


def _cumulative(buckets: list[int]) -> list[tuple[str, float]]:
    running, pairs = 0, []
    for bound, count in zip((*BOUNDS, "+Inf"), buckets, strict=True):
        running += count
        pairs.append((str(bound), float(running)))
    return pairs


def _listed(name: str, labels: tuple[str, ...], entries: Sequence[dict[str, Any]]) -> Iterator[GaugeMetricFamily]:
    """A gauge for each number that the entries of a list have, with what tells the entries apart as labels."""
    families: dict[str, GaugeMetricFamily] = {}
    for entry in entries:
        values = [str(entry.get(label, "")) for label in labels]
        for field, number in entry.items():
            if field in labels or not isinstance(number, int | float):
                continue
            if field not in families:
                text = f"{field} of {name} in /v1/status"
                families[field] = GaugeMetricFamily(_name(f"{name[:-1]}_{field}"), text, labels=labels)
            families[field].add_metric(values, float(number))
    yield from families.values()


def _numbers(status: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """The numbers in nested objects, named by their path."""
    for name, value in status.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{prefix}{name}_")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", value


def _name(name: str) -> str:
    return "headrace_" + INVALID.sub("_", name)
