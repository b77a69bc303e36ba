"""Reads and commits as a consumer of Confluent's REST Proxy, by a client that others wrote for it, against every node of
a cluster in turn. `make test-clients` runs it with the nodes' addresses."""

import asyncio
import json
import sys
import time
import urllib.error
import urllib.request

from kafka_bridge_client import KafkaBridgeConsumer, KafkaBridgeProducer

WANTED = 50


def node(urls, n):
    return urls[n % len(urls)] + "/"


def create_topic(urls):
    """Creates the topic, and returns when every node knows it."""
    body = json.dumps({"name": "parcels", "partitions": 3}).encode()
    request = urllib.request.Request(urls[0] + "/v1/topics", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request).read()
    for url in urls:
        for _ in range(600):
            try:
                urllib.request.urlopen(url + "/topics/parcels").read()
                break
            except urllib.error.HTTPError:
                time.sleep(0.1)


def produce(url):
    producer = KafkaBridgeProducer(url, timeout=30)
    for i in range(WANTED):
        producer.send("parcels", {"key": {"n": i % 7}, "value": {"n": i}})


def consumer(url, name):
    return KafkaBridgeConsumer(
        "parcels", bootstrap_server=url, group_id="couriers", auto_offset_reset="earliest", enable_auto_commit=False,
        consumer_name=name, proxy="confluent", sleep_interval_seconds=0,
    )


async def read(urls, name, wanted):
    """Reads so many records as one instance, each call to another node, and commits them."""
    c = consumer(node(urls, 0), name)
    seen = []
    async with c:
        turn = 0
        while len(seen) < wanted:
            turn += 1
            c._bootstrap_server = node(urls, turn)
            seen += await c.poll_records(max_bytes=40, timeout=1000)
            if seen:
                await c.commit()
    return seen


async def main(urls):
    create_topic(urls)
    produce(urls[-1])
    first = await read(urls, "van", WANTED // 2)
    rest = await read(urls, "van", WANTED - len(first))
    places = {(r["partition"], r["offset"]) for r in first + rest}
    assert len(first) + len(rest) == WANTED == len(places), (len(first), len(rest), len(places))


asyncio.run(main(sys.argv[1:]))
